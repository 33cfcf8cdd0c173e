// What a process has for itself alone. A child that was forked makes its own and leaves its parent's as it
// is, for good: connections are not to be ended from two sides, and a lock may have been held by a thread
// that is not there.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace cairn::s3 {

template <class T> class PerProcess {
 public:
  explicit PerProcess(std::function<std::unique_ptr<T>()> make)
      : make_(std::move(make)), owned_(new Owned{getpid(), make_()}) {}
  ~PerProcess() {
    Owned* const owned = owned_.load();
    if (owned->process == getpid()) delete owned;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    Owned* owned = owned_.load();
    if (owned->process == getpid()) return *owned->value;
    auto fresh = std::unique_ptr<Owned>(new Owned{getpid(), make_()});
    if (owned_.compare_exchange_strong(owned, fresh.get())) owned = fresh.release();
    return *owned->value;
  }

 private:
  struct Owned {
    pid_t process;
    std::unique_ptr<T> value;
  };
  std::function<std::unique_ptr<T>()> make_;
  std::atomic<Owned*> owned_;
};

}  // namespace cairn::s3
