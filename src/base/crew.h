// Threads that help the one that asked for them.
#pragma once

#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {

// Joined on every way out.
class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() { join(); }

  // Starts a thread that does `work`, which must not throw. False when there is none to be had, or no memory
  // for it: fewer do the same work then, or the caller alone.
  template <class Work> bool add(Work work) {
    try {
      threads_.emplace_back(std::move(work));
      return true;
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace cairn
