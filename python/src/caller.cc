#include <chrono>
#include <future>
#include <utility>

#include "python.h"

namespace cairn::python {
namespace {

// How soon Ctrl-C is noticed.
constexpr std::chrono::milliseconds kBetweenSignals(50);

}  // namespace

void Caller::run(const std::function<void()>& work, std::atomic<bool>& cancelled) {
  cancelled_ = &cancelled;
  done_ = false;
  {
    nb::gil_scoped_release release;
    std::future<void> working = std::async(std::launch::async, [&] {
      struct End {  // also when the work throws
        Caller& caller;
        ~End() {
          const std::lock_guard lock(caller.mutex_);
          caller.done_ = true;
          caller.changed_.notify_all();
        }
      } const end{*this};
      work();
    });
    serve();
    try {
      working.get();
    } catch (...) {
      if (interrupt_ == nullptr) throw;
    }
  }
  if (interrupt_ != nullptr) throw nb::python_error(std::move(*std::exchange(interrupt_, nullptr)));
}

// Without the GIL, until the work has ended.
void Caller::serve() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    if (wishes_.empty()) changed_.wait_for(lock, kBetweenSignals);
    Wish* const wish = wishes_.empty() ? nullptr : wishes_.front();
    if (wish != nullptr) wishes_.pop_front();
    lock.unlock();
    if (wish != nullptr) {
      grant(*wish);
    } else {
      nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) keep(nb::python_error());
    }
    lock.lock();
    if (wish == nullptr) continue;
    wish->done = true;
    changed_.notify_all();
  }
}

void Caller::grant(Wish& wish) {
  nb::gil_scoped_acquire acquire;
  try {
    try {
      wish.f();
    } catch (nb::python_error& raised) {
      if (raised.matches(PyExc_KeyboardInterrupt)) keep(raised);
      throw_as_error(raised);
    }
  } catch (...) {
    wish.failure = std::current_exception();
  }
}

// With the GIL held. The first one counts.
void Caller::keep(const nb::python_error& interrupt) {
  if (interrupt_ == nullptr) interrupt_ = std::make_unique<nb::python_error>(interrupt);
  *cancelled_ = true;
}

void Caller::call(const std::function<void()>& f) {
  Wish wish{f};
  std::unique_lock lock(mutex_);
  wishes_.push_back(&wish);
  changed_.notify_all();
  changed_.wait(lock, [&] { return wish.done; });
  if (wish.failure != nullptr) std::rethrow_exception(wish.failure);
}

}  // namespace cairn::python
