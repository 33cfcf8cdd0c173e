// Mutators that know a format. Each takes an input apart, changes it and puts it together again; false when
// it cannot take it apart, and libFuzzer's own changes have to do.
#pragma once

#include <cstdint>
#include <random>
#include <string>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace cairn::fuzz {

using Random = std::minstd_rand;

inline std::size_t below(Random& random, std::size_t n) { return random() % n; }

// libFuzzer's own changes, on a part of an input.
inline void mutate_bytes(std::string& bytes, std::size_t most = 4096) {
  const std::size_t size = bytes.size();
  if (size > most) return;
  bytes.resize(most);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, most));
}

bool mutate_pickle(std::string& program, Random& random);
bool mutate_zip(std::string& archive, Random& random);

}  // namespace cairn::fuzz
