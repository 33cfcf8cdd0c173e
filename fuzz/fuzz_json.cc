// The JSON scanner on any text: what it passes over is what nlohmann's reader accepts, less what two readers
// could see differently (a name twice, lone surrogates, nesting beyond the limit), and strings decode to the
// same.
#include <nlohmann/json.hpp>
#include <vector>

#include "base/utf8.h"
#include "format/json_scanner.h"
#include "fuzz.h"

namespace cairn::fuzz {
namespace {

// nlohmann's reader stops at a NUL as if the text ended there, and passes over a byte order mark.
bool accepted_elsewhere(std::string_view text) { return nlohmann::json::accept(text); }

// Every string of an array of strings, by both readers.
void compare_strings(std::string_view text) {
  std::vector<std::string> ours;
  JsonScanner scan(text, 0, "the text");
  scan.array([&] { ours.emplace_back(scan.string()); });
  scan.finish();
  const auto theirs = nlohmann::json::parse(text, nullptr, false);
  require(theirs.is_array() && theirs.size() == ours.size(), "both see the same array");
  for (std::size_t i = 0; i < ours.size(); ++i)
    require(theirs[i].get<std::string>() == ours[i], "both see the same string");
}

}  // namespace

void run(ByteSpan input, const Limits& limits) {
  const std::string_view text = as_text(input);
  if (!is_utf8(text)) throw Error(ErrorCode::kCorrupt, "no UTF-8");
  JsonScanner scan(text, 0, "the text");
  scan.skip_value(limits.json_depth);
  scan.finish();
  require(accepted_elsewhere(text), "another reader accepts it too");
  compare_strings(text);
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
