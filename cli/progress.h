// How far a long command is: a bar on stderr, when that is a terminal.
#pragma once

#include <chrono>
#include <cstddef>

#include "cairn/checkpoint_storage.h"

namespace cairn::cli {

// Used by one thread at a time. Nothing stays on the screen of it.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(const Progress& progress);  // at most ten times a second

 private:
  bool is_terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = begun_;
};

}  // namespace cairn::cli
