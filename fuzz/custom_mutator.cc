// Gives libFuzzer the mutator that the target is built with: CAIRN_MUTATE is mutate_pickle or mutate_zip.
// One input in four is left to libFuzzer, which also breaks what a mutator would keep whole.
#include <algorithm>
#include <cstring>

#include "mutate.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace cairn::fuzz;
  Random random(seed);
  std::string input(reinterpret_cast<const char*>(data), size);
  if (below(random, 4) == 0 || !CAIRN_MUTATE(input, random)) return LLVMFuzzerMutate(data, size, max_size);
  input.resize(std::min(input.size(), max_size));
  std::memcpy(data, input.data(), input.size());
  return input.size();
}
