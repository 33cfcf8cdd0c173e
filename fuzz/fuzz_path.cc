// File names found in checkpoints: none that is accepted may leave the checkpoint's directory.
#include "format/safetensors.h"
#include "fuzz.h"

namespace cairn::fuzz {

void run(ByteSpan input, const Limits& limits) {
  const std::string_view path = as_text(input);
  check_relative_path(path, limits);
  require(!path.empty() && path.size() <= limits.path_bytes, "a path has a sensible length");
  require(path.find('\0') == path.npos, "a path has no NUL");
  std::string_view rest = path;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    require(!part.empty() && part != "." && part != "..", "no part is empty or leads elsewhere");
    require(part.size() <= 255, "a part has a sensible length");
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
