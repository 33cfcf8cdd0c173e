#include "base/seeded_hash.h"

#include <random>

namespace cairn {
namespace {

HashSeed draw() {
  std::random_device device;
  const auto number = [&] { return std::uint64_t{device()} << 32 | device(); };
  // Factors with few bits set would mix badly; a random one has about half of them.
  return {number(), number() | 1};
}

}  // namespace

const HashSeed kHashSeed = draw();

}  // namespace cairn
