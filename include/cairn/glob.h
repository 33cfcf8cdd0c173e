// Patterns for names: "model.layers.*.w?".
#pragma once

#include <string_view>

namespace cairn {

// Does the whole of `name` match? `*` stands for any run of characters, dots included, `?` for one
// character (of UTF-8), and a backslash takes the next character as it is. All else, brackets too, stands
// for itself. At most pattern x name steps, whatever the pattern.
bool matches_glob(std::string_view pattern, std::string_view name);

}  // namespace cairn
