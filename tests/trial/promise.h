// What all trials share: a promise that is broken ends the program, with the words to find it again.
//
//   int main(int argc, char** argv) {
//     if (argc != 2) return 2;
//     return run_trial("growth", argv[1], [&] { require(grown() == 0, "the process grows"); });
//   }
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "cairn/error.h"

namespace cairn {

// Something that the library promises is not so.
class BrokenPromise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool kept, const std::string& promise) {
  if (!kept) throw BrokenPromise(promise);
}

// The parts of an argument such as "EIO,ENOSPC".
inline std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
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
