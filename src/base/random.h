// Numbers that nobody can guess, from the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn {

// Error(kIo) where there are none.
void fill_randomly(std::span<std::byte> to);
std::uint64_t random_number();

}  // namespace cairn
