// What the programs of this directory share: a promise that is broken ends them, with the words to find it
// again.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "cairn/error.h"
#include "cairn/state_dict.h"

namespace cairn {

inline void require(bool kept, const std::string& promise) {
  if (!kept) throw std::runtime_error(promise);
}

// Runs a program: 0 when all promises were kept, 1 when one was not, with what repeats it.
template <class Run> int run_trial(const char* program, const std::string& repeat, const Run& run) {
  try {
    run();
    return 0;
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "{}: {} ({})\n", program, e.what(), repeat);
    return 1;
  }
}

}  // namespace cairn
