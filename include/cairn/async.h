// Saving in the background: the training goes on while the checkpoint is written.
//
//   AsyncSaver saver({.save = {.group = &group}});
//   SaveHandle saved = saver.async_save(state, "run/step-1000");     // returns when the snapshot is whole
//   train(state);                                                     // the state may change
//   saved.wait();                                                     // the checkpoint is there
//
// An AsyncSaver is used by one thread, a SaveHandle and its copies by any. What is promised when is in
// docs/async.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cairn/cairn.h"
#include "cairn/staging.h"

namespace cairn {

struct AsyncJob;
class ProcessExit;

enum class StagingMode : std::uint8_t {
  kBlocking,    // the call returns when the snapshot is whole
  kOverlapped,  // it returns at once; the state must not change until SaveHandle::wait_staged or guard
};

// When the snapshot does not fit into the budget.
enum class OnFull : std::uint8_t {
  kWait,          // until older saves have ended; an error when it can never fit
  kError,         // Error(kLimit)
  kWriteThrough,  // the call blocks and writes the live state itself; SaveHandle::written_through
};

// When `max_in_flight` saves have not ended.
enum class OnBusy : std::uint8_t { kWait, kError };

// What the end of an AsyncSaver does with saves that have not ended, and so do exit() and the return of
// main() while it lives. Neither can leave half a checkpoint.
enum class AtExit : std::uint8_t { kWait, kCancel };

enum class IoPriority : std::uint8_t { kUsual, kLow, kIdle };

struct AsyncOptions {
  // Of every save. The group, planner and writer are used in the background: nobody else may use them
  // meanwhile. mpi_group() talks over a communicator of its own, so one made for the saver is enough.
  SaveOptions save = {};
  StagingMode mode = StagingMode::kBlocking;
  Stager* stager = nullptr;  // borrowed; null: a default_stager with `staging`
  StagingOptions staging = {};
  OnFull on_full = OnFull::kWait;
  int max_in_flight = 1;
  OnBusy on_busy = OnBusy::kWait;
  // How long a call waits for memory or for older saves: Error(kTimeout).
  std::chrono::nanoseconds patience = std::chrono::minutes(30);
  int nice = 0;  // of the threads that write, 0 to 19
  IoPriority io_priority = IoPriority::kUsual;
  AtExit at_exit = AtExit::kWait;
  std::chrono::nanoseconds exit_patience = std::chrono::minutes(10);  // then they are cancelled
};

enum class SavePhase : std::uint8_t { kStaging, kQueued, kPlanning, kWriting, kDone, kFailed };
std::string_view name_of(SavePhase phase);  // "staging", ...

// How far a save has come on this rank.
struct SaveProgress {
  SavePhase phase = SavePhase::kStaging;
  std::uint64_t staged = 0;    // bytes copied into the snapshot
  std::uint64_t to_stage = 0;  // bytes of it; 0 when it is written through
  std::uint64_t written = 0;
  std::uint64_t to_write = 0;  // known from kWriting on
  int rank = 0;
};

// The scope in which the state may change: made by SaveHandle::guard and AsyncSaver::guard, which wait first.
class [[nodiscard, maybe_unused]] StepGuard {
 public:
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;
  ~StepGuard() = default;

 private:
  friend class AsyncSaver;
  friend class SaveHandle;
  StepGuard() = default;
};

// One save. A handle that is dropped changes nothing: the save goes on, and a failure surfaces at the next
// one.
class SaveHandle {
 public:
  using Time = std::chrono::steady_clock::time_point;

  const std::string& id() const;
  bool staging_done() const;     // the state may change; also when staging failed
  bool written_through() const;  // there was no snapshot: the call itself has saved

  // Until the state may change. Throws what staging threw; Error(kTimeout) at the deadline.
  void wait_staged(Time deadline = Time::max()) const;
  // Until the checkpoint is there. Throws what the save threw; Error(kTimeout) at the deadline, and the save
  // goes on.
  SaveResult wait(Time deadline = Time::max()) const;
  bool done() const;  // wait() would not wait

  // The save stops soon, on all ranks, and the checkpoint that was there stays: wait() throws
  // Error(kCancelled). Too late once all is written: wait() tells.
  void cancel() const;

  SaveProgress progress() const;

  // Held around the step that changes the state: waits while a copy is under way, and only then. A staging
  // that failed is no error here; wait() tells.
  StepGuard guard() const;

 private:
  friend class AsyncSaver;
  explicit SaveHandle(std::shared_ptr<AsyncJob> job);
  std::shared_ptr<AsyncJob> job_;
};

// The saves of one group, written one after the other, in the order of the calls, by one background thread.
//
// All ranks make the same calls in the same order. A rank whose call throws lets the others know: their save
// of that id fails with the same cause.
class AsyncSaver {
 public:
  explicit AsyncSaver(AsyncOptions options = {});
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  ~AsyncSaver();  // as `at_exit` says; a system call that hangs holds it up

  // What is written is what the state holds now, at the call. Throws when it cannot be staged (see OnFull,
  // OnBusy), and what an older save threw that nobody has waited for; then nothing is saved.
  SaveHandle async_save(const StateDict& state, const std::string& id);
  // With other options for this save; the group must be the saver's.
  SaveHandle async_save(const StateDict& state, const std::string& id, const SaveOptions& save);
  // The Stateful parts are asked here, in the caller's thread.
  SaveHandle async_save(AppState& state, const std::string& id);

  // Makes the first async_save of such a state as quick as the others (Stager::prepare).
  void prepare(const StateDict& state);

  // As SaveHandle::guard, for all saves so far; waits for none when none is being copied.
  StepGuard guard();

  // Until all saves have ended. Throws a failure that nobody has waited for; Error(kTimeout).
  void wait(std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

 private:
  class Worker;
  void stage(AsyncJob& job, const StateDict& state);
  SaveHandle submit(const std::function<const StateDict&()>& state, std::shared_ptr<AsyncJob> job);
  void end_saves() noexcept;

  const AsyncOptions options_;
  std::unique_ptr<Stager> own_stager_;
  Stager* stager_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<ProcessExit> exit_;
};

}  // namespace cairn
