#include "cairn/glob.h"

#include <cstddef>

namespace cairn {
namespace {

// Where the character that starts at `at` ends. A stray continuation byte counts as a character.
std::size_t next_character(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view name) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t p = 0;
  std::size_t n = 0;
  // Only the latest star ever needs to take more: what an earlier one took is already a shortest fit.
  std::size_t star = kNone;  // just past the latest star
  std::size_t taken = 0;     // where its run ends so far
  while (true) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      taken = n;
      if (p == pattern.size()) return true;
      continue;
    }
    if (n == name.size() && p == pattern.size()) return true;
    if (n < name.size() && p < pattern.size()) {
      if (pattern[p] == '?') {
        ++p;
        n = next_character(name, n);
        continue;
      }
      const std::size_t literal = pattern[p] == '\\' && p + 1 < pattern.size() ? p + 1 : p;
      if (pattern[literal] == name[n]) {
        p = literal + 1;
        ++n;
        continue;
      }
    }
    if (star == kNone || taken >= name.size()) return false;
    p = star;
    n = ++taken;
  }
}

}  // namespace cairn
