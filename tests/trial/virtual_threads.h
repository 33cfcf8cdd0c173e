// Where random numbers come from when the library asks the system for some.
#pragma once

#include <cstdint>

#include "random.h"

namespace cairn::sim {

// From here on these; null: none. Borrowed.
void draw_from(Random* random);
std::uint64_t draw();

}  // namespace cairn::sim
