// Names of a hostile checkpoint under the rules of an honest user. An input is "rule\nname": the rule is one
// of the list below by its first byte, or "pattern=replacement" of at most 32 characters; the name is
// anything of at most 256 bytes: some rules take time that grows with the square of it.
#include <algorithm>
#include <array>

#include "convert/name_map.h"
#include "fuzz.h"

namespace cairn::fuzz {
namespace {

constexpr std::size_t kMostRule = 32;
constexpr std::size_t kMostName = 256;

const std::array kRules = {
    KeyRule{"^model\\.", ""},  KeyRule{"(.*)\\.weight$", "$1.w"},
    KeyRule{"(a+)+$", "x"},    KeyRule{"layers\\.(\\d+)", "h.\\1"},
    KeyRule{"(.|\\.)*z", "y"}, KeyRule{"[^.]+", "<$&>"},
};

KeyRule rule_of(std::string_view text) {
  if (text.empty()) return kRules[0];
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return kRules[static_cast<unsigned char>(text[0]) % kRules.size()];
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

}  // namespace

void run(ByteSpan input, const Limits&) {
  const std::string_view text = as_text(input);
  const std::size_t end = std::min(text.find('\n'), text.size());
  if (end > kMostRule) throw Error(ErrorCode::kLimit, "the rule is too long");
  const std::string name(text.substr(std::min(end + 1, text.size())));
  if (name.size() > kMostName) throw Error(ErrorCode::kLimit, "the name is too long");
  const NameMap map({rule_of(text.substr(0, end))});
  const std::string once = map(name);
  require(map(name) == once, "a name has one new name");
  require(NameMap({})(name) == name, "no rule, no change");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
