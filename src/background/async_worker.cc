#include "background/async_worker.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace cairn {
namespace {

constexpr int kIoOfOneThread = 1;  // linux/ioprio.h: IOPRIO_WHO_PROCESS
constexpr int kIoClassShift = 13;
constexpr int kIoBestEffort = 2;
constexpr int kIoIdle = 3;
constexpr int kLowestLevel = 7;

// Of this thread and of those that it starts. A system that refuses leaves it as it is: slower for others,
// but right.
void lower_priority(int nice, IoPriority io) {
  if (nice > 0) (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), nice);
  if (io == IoPriority::kUsual) return;
  const int priority =
      io == IoPriority::kIdle ? kIoIdle << kIoClassShift : (kIoBestEffort << kIoClassShift) | kLowestLevel;
  (void)::syscall(SYS_ioprio_set, kIoOfOneThread, 0, priority);
}

}  // namespace

AsyncSaver::Worker::Worker(int nice, IoPriority io_priority)
    : thread_([this, nice, io_priority] { work(nice, io_priority); }) {}

AsyncSaver::Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void AsyncSaver::Worker::work(int nice, IoPriority io_priority) {
  lower_priority(nice, io_priority);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::shared_ptr<AsyncJob> job = jobs_.front();
    lock.unlock();
    job->run();
    lock.lock();
    // In one step: who learns from the handle that the save has ended finds it gone here.
    if (job->has_failed()) {
      failed_.splice(failed_.end(), jobs_, jobs_.begin());
    } else {
      jobs_.pop_front();
    }
    job->publish();
    changed_.notify_all();
  }
}

void AsyncSaver::Worker::add(std::shared_ptr<AsyncJob> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

bool AsyncSaver::Worker::wait_below(std::size_t most, Time deadline) {
  std::unique_lock lock(mutex_);
  const auto below = [&] { return jobs_.size() < most; };
  if (deadline != Time::max()) return changed_.wait_until(lock, deadline, below);
  changed_.wait(lock, below);
  return true;
}

void AsyncSaver::Worker::surface_failure() {
  for (;;) {
    std::shared_ptr<AsyncJob> job;
    {
      const std::lock_guard lock(mutex_);
      if (failed_.empty()) return;
      job = std::move(failed_.front());
      failed_.pop_front();
    }
    if (job->take_failure()) (void)job->result();
  }
}

void AsyncSaver::Worker::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_) job->cancelled = true;
}

}  // namespace cairn
