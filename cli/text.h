// Numbers and names as people read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/tensor.h"

namespace cairn::cli {

class Output;

// A short text built in place: no allocation.
struct ShortText {
  char data[32];
  std::size_t size = 0;
  std::string_view view() const { return {data, size}; }
};

bool is_hidden(std::uint32_t c);             // prints nothing of its own but changes what is around it
ShortText human_bytes(std::uint64_t bytes);  // "256 B", "1.2 GiB"; at most ten characters

inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~0ULL : a + b; }

std::string counted(std::uint64_t count, std::string_view noun);  // "1 tensor", "2 tensors"

std::size_t digits(std::uint64_t n);       // how many; 1 for 0
std::size_t width_of(const Shape& shape);  // of to_string(shape)
void put_shape(Output& out, const Shape& shape);

// Names come from files that anybody may have written. What a terminal could take for a command (control
// characters, changes of writing direction, bytes that are no UTF-8) is shown as \n, \x1b or \u202e.
enum class Backslash {
  kDouble,  // "\" becomes "\\", so that no two names look alike
  kKeep,    // the text is already escaped, or prose
};
bool is_plain(std::string_view text);  // printable ASCII without backslash: it shows as it is
std::string visible(std::string_view text, Backslash backslash = Backslash::kDouble);
std::size_t width_of(std::string_view visible_text);  // in characters
void put_visible(Output& out, std::string_view text);

// Orders "layers.2" before "layers.10": runs of digits count as numbers.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace cairn::cli
