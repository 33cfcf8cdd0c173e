// One seed of s3_trial: jobs that save over one another in a bucket whose server does wrong.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "s3_faults.h"

namespace cairn {

struct S3Counts {
  std::uint64_t seeds = 0, saves = 0, done = 0, failed = 0;
  std::uint64_t conflicts = 0;  // of those that failed
  std::uint64_t unsure = 0;     // failed, and the checkpoint is there: the answer to the commit never came
  std::uint64_t loads = 0, loaded = 0;  // beside saves
  std::uint64_t requests = 0;
  std::chrono::duration<double> slowest{0};  // of all saves and loads
  std::array<std::uint64_t, kS3Wrongs> faults{};
  std::map<std::string, std::uint64_t> errors;

  void add(const S3Counts& other);
};

// Throws when a promise is broken.
void run_s3_seed(std::uint64_t seed, S3Counts& counts);

}  // namespace cairn
