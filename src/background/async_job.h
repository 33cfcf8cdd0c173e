// One save in the background, as its handle, its caller and the worker see it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>

#include "cairn/async.h"

namespace cairn {

struct AsyncJob {
  using Time = std::chrono::steady_clock::time_point;
  AsyncJob(std::string where, const SaveOptions& how);
  AsyncJob(const AsyncJob&) = delete;
  AsyncJob& operator=(const AsyncJob&) = delete;
  ~AsyncJob() = default;

  // Runs the save; nobody knows how it ended until publish(). The snapshot's memory is free then.
  void run();
  void publish();
  bool has_failed() const { return failure_ != nullptr; }  // for who called run()
  bool wait(Time deadline);                                // until it has ended
  SaveResult result();                                     // of a save that has ended; throws what it threw
  // Whether it failed and nobody was told so far; who asks is told.
  bool take_failure();
  SaveProgress progress();

  const std::string id;
  SaveOptions options;
  std::atomic<bool> cancelled = false;

  // Set by the caller before the worker sees the job; `snapshot` is the worker's from then on.
  std::optional<Snapshot> snapshot;
  const StateDict* live = nullptr;  // written through
  std::optional<Error> refusal;     // this rank could not stage: the other ranks are to know
  std::shared_future<void> staged;
  std::shared_ptr<const std::atomic<std::uint64_t>> copied;
  std::uint64_t to_stage = 0;

 private:
  const StateDict& state();
  void note(const Progress& progress);

  const std::string doing_;  // what an error says; made while there is memory for it
  std::mutex mutex_;         // guards what follows
  std::condition_variable changed_;
  SaveProgress progress_;
  bool ended_ = false;
  bool told_ = false;

  SaveResult result_;  // set before ended_, and not changed afterwards
  std::exception_ptr failure_;
};

}  // namespace cairn
