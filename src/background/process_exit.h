// What is still to be done when the process ends while somebody works in the background.
#pragma once

#include <sys/types.h>

#include <functional>

namespace cairn {

// While it lives, exit() and the return of main() call `finish` first: a thread in the background would
// otherwise run on while the process is taken apart around it. A process that was forked from this one does
// not: it has none of its threads.
class ProcessExit {
 public:
  explicit ProcessExit(std::function<void()> finish);
  ProcessExit(const ProcessExit&) = delete;
  ProcessExit& operator=(const ProcessExit&) = delete;
  ~ProcessExit();  // waits for a `finish` that is under way

  bool is_of_this_process() const;  // not one that it was forked from

 private:
  static void finish_all();

  std::function<void()> finish_;
  pid_t process_;
};

}  // namespace cairn
