// Which cairn this is and what it was built with.
#pragma once

#include <span>
#include <string_view>

namespace cairn {

std::string_view version();  // "0.1.0"

// Something that depends on a library found when cairn was built.
struct Feature {
  std::string_view name;     // "zstd"
  std::string_view purpose;  // what it is for, or what happens without it
  bool available = false;
};
std::span<const Feature> features();

}  // namespace cairn
