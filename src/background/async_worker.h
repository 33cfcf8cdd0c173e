// The thread behind an AsyncSaver: runs saves one after the other, in the order they come.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "background/async_job.h"

namespace cairn {

class AsyncSaver::Worker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Worker(int nice, IoPriority io_priority);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();  // runs what is queued; cancel_all() first makes that short

  void add(std::shared_ptr<AsyncJob> job);
  // Until fewer than `most` saves have not ended; false at the deadline.
  bool wait_below(std::size_t most, Time deadline);
  // Throws the oldest failure of which nobody has been told.
  void surface_failure();
  void cancel_all();

 private:
  void work(int nice, IoPriority io_priority);

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  // Lists, so that a job changes from one to the other without memory.
  std::list<std::shared_ptr<AsyncJob>> jobs_;    // the first is being run
  std::list<std::shared_ptr<AsyncJob>> failed_;  // and perhaps nobody knows
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cairn
