#include "background/process_exit.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace cairn {
namespace {

struct Living {
  std::mutex mutex;
  std::vector<ProcessExit*> all;
};

// Never destroyed: it is needed to the very end.
Living& living() {
  static auto* const living = new Living;
  return *living;
}

}  // namespace

ProcessExit::ProcessExit(std::function<void()> finish) : finish_(std::move(finish)), process_(::getpid()) {
  static const bool registered = std::atexit(finish_all) == 0;
  (void)registered;  // a process that can register nothing more ends as if it were killed
  const std::lock_guard lock(living().mutex);
  living().all.push_back(this);
}

ProcessExit::~ProcessExit() {
  const std::lock_guard lock(living().mutex);
  std::erase(living().all, this);
}

bool ProcessExit::is_of_this_process() const { return process_ == ::getpid(); }

void ProcessExit::finish_all() {
  const std::lock_guard lock(living().mutex);
  for (const ProcessExit* one : living().all)
    if (one->is_of_this_process()) one->finish_();
}

}  // namespace cairn
