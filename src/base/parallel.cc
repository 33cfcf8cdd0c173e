#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/crew.h"

namespace cairn {

int core_count() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

void share_work(int threads, const std::function<void(int)>& work, const std::function<void()>& stop) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&](int thread) {
    try {
      work(thread);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure) return;
      failure = std::current_exception();
      if (stop) stop();  // now: what others run into because of it is not the failure to tell
    }
  };
  Crew others;
  for (int t = 1; t < threads; ++t)
    if (!others.add([&run, t] { run(t); })) break;
  run(0);
  others.join();
  if (failure) std::rethrow_exception(failure);
}

void for_each_in_parallel(std::size_t count, int threads, const std::function<void(std::size_t, int)>& work,
                          const std::function<void()>& stop) {
  std::atomic<std::size_t> next = 0;
  const auto helpful = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
  share_work(
      static_cast<int>(helpful),
      [&](int thread) {
        for (std::size_t i = next++; i < count; i = next++) work(i, thread);
      },
      [&] {
        next = count;
        if (stop) stop();
      });
}

}  // namespace cairn
