// Names within a policy: of metrics and tags.
#pragma once

#include <algorithm>
#include <string>

namespace cairn {

inline bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

inline std::string quoted_if_needed(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string text = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

}  // namespace cairn
