// Plain values as Python's repr() prints them.
#pragma once

#include <string>
#include <string_view>

#include "cairn/state_dict.h"

namespace cairn {

std::string repr_of_real(double v);  // the shortest text that reads back as the same number
// Quoted and escaped. Stops soon after `max_chars`, without the closing quote.
std::string repr_of_text(std::string_view text, std::size_t max_chars = std::string::npos);
std::string repr_of_bytes(std::string_view data, std::size_t max_chars = std::string::npos);
// In base 10; very long ones only by their size, since the time grows with the square of it.
std::string decimal(const BigInt& v);

}  // namespace cairn
