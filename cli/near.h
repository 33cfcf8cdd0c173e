// "Did you mean ...?"
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::cli {

// Up to three candidates that look like what was typed, best first: few letters apart, or names that
// end in it.
std::vector<std::string_view> near_names(std::string_view typed,
                                         std::span<const std::string_view> candidates);

// ", did you mean 'a' or 'b'?", or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates);

}  // namespace cairn::cli
