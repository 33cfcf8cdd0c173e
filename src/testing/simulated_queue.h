// Work that is done in order by a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace cairn {

class SimulatedQueue {
 public:
  SimulatedQueue() : thread_([this] { run(); }) {}
  SimulatedQueue(const SimulatedQueue&) = delete;
  SimulatedQueue& operator=(const SimulatedQueue&) = delete;
  ~SimulatedQueue() {  // does what it was given
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void add(std::function<void()> work, std::chrono::microseconds time) {
    const std::lock_guard lock(mutex_);
    work_.push_back({std::move(work), time});
    ++given_;
    changed_.notify_all();
  }
  std::uint64_t given() const {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  // Until so much of it is done. Throws what it threw.
  void wait(std::uint64_t given) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= given; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Work {
    std::function<void()> work;
    std::chrono::microseconds time;
  };
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
      if (work_.empty()) return;
      const Work next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      if (next.time.count() > 0) std::this_thread::sleep_for(next.time);
      try {
        next.work();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) failure_ = failure;
      ++done_;
      changed_.notify_all();
    }
  }

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace cairn
