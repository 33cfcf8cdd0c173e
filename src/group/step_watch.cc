#include "group/step_watch.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/trial.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 10ms;  // between two looks

class Watch {
 public:
  Watch(Steps& steps, const std::atomic<bool>* cancelled, std::atomic<bool>& stop)
      : steps_(steps),
        step_(steps.gathering()),
        looks_(steps.group().looks_ahead()),
        cancelled_(cancelled),
        stop_(stop) {
    stop_ = is_cancelled();
    thread_ = std::thread([this] { look_until_done(); });
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { end(); }

  // From here on nobody looks, and the group is the caller's again.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  bool is_cancelled() const { return cancelled_ != nullptr && *cancelled_; }
  bool has_failed_elsewhere() const { return failed_elsewhere_; }

  void tell_others() {
    if (!looks_ || !steps_.is_coordinator() || told_) return;
    told_ = true;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      try {
        CAIRN_POINT("watch.before_hint");
        if (rank != steps_.rank()) steps_.group().hint(rank, kFailedPart, step_);
      } catch (...) {
        // It will hear of it later, or is gone; or there is no memory to tell it.
      }
    }
  }

  // On the coordinator, when its own part is made.
  void await_others() {
    if (!looks_ || !steps_.is_coordinator()) return;
    // What has come must still be taken before the deadline, or the wrong rank is said to be late.
    const Clock::time_point until = step_.deadline - (step_.deadline - Clock::now()) / 10;
    for (Clock::duration pause = 20us; Clock::now() < until;
         pause = std::min<Clock::duration>(2 * pause, kPause)) {
      if (look() || is_cancelled()) return tell_others();
      if (have_all_come_) return;
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  // Whether another rank has failed; the others know nothing of each other, only of the coordinator.
  bool look() {
    have_all_come_ = true;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      const bool is_watched = steps_.is_coordinator() ? rank != steps_.rank() : rank == steps_.coordinator();
      if (!is_watched) continue;
      try {
        const std::optional<char> kind = steps_.group().peek(rank, step_);
        if (kind == kFailedPart) return true;
        if (!kind) have_all_come_ = false;
      } catch (const Error& e) {
        // It will never come; the exchange itself says so, with all that is to be said.
        if (e.code() == ErrorCode::kCancelled) return true;
      } catch (...) {
        // No memory to look: so says the exchange.
      }
    }
    return false;
  }

  void look_until_done() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kPause, [&] { return done_; })) {
      if (is_cancelled()) break;
      if (!looks_ || !look()) continue;
      failed_elsewhere_ = true;
      tell_others();
      break;
    }
    if (is_cancelled() || failed_elsewhere_) stop_ = true;
  }

  Steps& steps_;
  const Step step_;
  const bool looks_;
  const std::atomic<bool>* cancelled_;
  std::atomic<bool>& stop_;
  bool told_ = false;
  bool have_all_come_ = false;
  std::atomic<bool> failed_elsewhere_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

std::string watched(Steps& steps, const std::atomic<bool>* cancelled, std::atomic<bool>& stop,
                    const std::function<std::string()>& part) {
  Watch watch(steps, cancelled, stop);
  try {
    std::string made = part();
    CAIRN_POINT("watch.before_await");
    watch.end();
    watch.await_others();
    return made;
  } catch (const Error& e) {
    watch.end();
    watch.tell_others();
    if (e.code() == ErrorCode::kCancelled && watch.has_failed_elsewhere() && !watch.is_cancelled())
      throw StoppedError();
    throw;
  } catch (...) {
    watch.end();
    watch.tell_others();
    throw;
  }
}

}  // namespace cairn
