#include "storage/text_file.h"

#include <fstream>
#include <iterator>
#include <optional>

#include "base/source.h"
#include "cairn/error.h"
#include "cairn/storage.h"

namespace cairn {

std::string read_text(const std::string& url) {
  if (const std::optional<std::string> path = local_path_of(url)) {
    std::ifstream file(*path, std::ios::binary);
    if (!file) throw Error(ErrorCode::kNotFound, "cannot read the text").in_file(url);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  const Place place = find_place(url);
  if (!place.is_file()) throw Error(ErrorCode::kNotFound, "cannot read the text").in_file(url);
  return read_all(*place.files->open(place.name));
}

}  // namespace cairn
