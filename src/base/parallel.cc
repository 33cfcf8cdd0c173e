#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/crew.h"

namespace cairn {

void for_each_in_parallel(std::size_t count, int threads, const std::function<void(std::size_t, int)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&](int thread) {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i, thread);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const std::size_t helpful = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
  Crew others;
  for (std::size_t t = 1; t < helpful; ++t)
    if (!others.add([&run, t] { run(static_cast<int>(t)); })) break;
  run(0);
  others.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cairn
