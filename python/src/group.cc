#include "group.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "cairn/error.h"

namespace cairn::python {
namespace {

// torch.distributed takes no time-out of centuries.
constexpr double kLongest = 7.0 * 24 * 3600;

double seconds_left(const Step& step) {
  const auto now = std::chrono::steady_clock::now();
  if (step.deadline > now + std::chrono::hours(24 * 7)) return kLongest;
  return std::max(0.001, std::chrono::duration<double>(step.deadline - now).count());
}

// What a collective of torch.distributed raises when somebody is late or gone is a RuntimeError with a text.
[[noreturn]] void throw_lost(nb::python_error& raised) {
  if (!raised.matches(PyExc_RuntimeError)) throw_as_error(raised);
  const std::string text = nb::cast<std::string>(nb::str(raised.value()));
  throw Error(ErrorCode::kTimeout, "the ranks could not talk to each other: " + text);
}

template <class F> auto with_group(const F& f) {
  nb::gil_scoped_acquire acquire;
  try {
    return f();
  } catch (nb::python_error& raised) {
    throw_lost(raised);
  }
}

// Calls something again and again, from a thread of its own, as long as it lives. After a failure it is
// silent: the exchange that follows fails too, and says why.
class Heartbeat {
 public:
  Heartbeat(std::function<void()> beat, std::chrono::duration<double> every)
      : beat_(std::move(beat)), every_(every), thread_([this] { run(); }) {}
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, every_, [&] { return done_; })) {
      lock.unlock();
      try {
        beat_();
      } catch (...) {
        return;
      }
      lock.lock();
    }
  }

  std::function<void()> beat_;
  std::chrono::duration<double> every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

std::vector<std::string> to_strings(nb::handle list) {
  std::vector<std::string> strings;
  for (nb::handle bytes : list) strings.emplace_back(bytes_of(bytes));
  return strings;
}

}  // namespace

PythonGroup::PythonGroup(nb::object exchange)
    : exchange_(std::move(exchange)),
      rank_(nb::cast<int>(exchange_.attr("rank"))),
      size_(nb::cast<int>(exchange_.attr("size"))),
      heartbeat_(nb::cast<double>(exchange_.attr("heartbeat"))) {}

PythonGroup::~PythonGroup() {
  nb::gil_scoped_acquire acquire;
  exchange_.reset();
}

std::vector<std::string> PythonGroup::gather(std::string mine, int root, const Step& step) {
  return with_group(
      [&] { return to_strings(exchange_.attr("gather")(to_bytes(mine), root, seconds_left(step))); });
}

std::string PythonGroup::scatter(std::vector<std::string> all, int root, const Step& step) {
  return with_group([&] {
    nb::list parts;
    for (const std::string& part : all) parts.append(to_bytes(part));
    return std::string(bytes_of(nb::object(exchange_.attr("scatter")(parts, root, seconds_left(step)))));
  });
}

std::string PythonGroup::broadcast(std::string bytes, int root, const Step& step) {
  return with_group([&] {
    return std::string(
        bytes_of(nb::object(exchange_.attr("broadcast")(to_bytes(bytes), root, seconds_left(step)))));
  });
}

std::vector<std::string> PythonGroup::all_gather(std::string mine, const Step& step) {
  return with_group(
      [&] { return to_strings(exchange_.attr("all_gather")(to_bytes(mine), seconds_left(step))); });
}

std::shared_ptr<void> PythonGroup::stay_alive(std::optional<int> root) {
  if (heartbeat_.count() <= 0 || size_ == 1) return nullptr;
  const auto beat = [this, root] {
    with_group([&] { exchange_.attr("sign_of_life")(root ? nb::object(nb::int_(*root)) : nb::none()); });
  };
  return std::make_shared<Heartbeat>(beat, heartbeat_);
}

void PythonGroup::barrier(const Step& step) {
  with_group([&] { exchange_.attr("barrier")(seconds_left(step)); });
}

}  // namespace cairn::python
