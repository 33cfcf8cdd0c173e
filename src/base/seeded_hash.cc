#include "base/seeded_hash.h"

#include "base/random.h"

namespace cairn {
namespace {

HashSeed draw() {
  // Factors with few bits set would mix badly; a random one has about half of them.
  return {random_number(), random_number() | 1};
}

}  // namespace

const HashSeed kHashSeed = draw();

}  // namespace cairn
