#include "cairn/async.h"

#include <fmt/format.h>

#include <utility>

#include "background/async_job.h"
#include "background/async_worker.h"
#include "background/process_exit.h"
#include "base/current_error.h"
#include "base/trial.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Clock::time_point kAtOnce{};          // long ago: do not wait
constexpr std::chrono::seconds kToCleanUp(10);  // what a cancelled save may take when the process ends
constexpr const char* kCancelByHandle = "a save in the background is cancelled through its SaveHandle";

Clock::time_point after(std::chrono::nanoseconds time) {
  const Clock::time_point now = Clock::now();
  return time > Clock::time_point::max() - now ? Clock::time_point::max() : now + time;
}

AsyncOptions checked(AsyncOptions options) {
  const auto bad = [](std::string text) { throw Error(ErrorCode::kInvalidArgument, std::move(text)); };
  if (options.max_in_flight < 1) bad("max_in_flight must be at least 1");
  if (options.save.cancelled != nullptr) bad(kCancelByHandle);
  if (options.nice < 0 || options.nice > 19)
    bad(fmt::format("nice is {}; 0 to 19 are possible", options.nice));
  return options;
}

void check(const SaveOptions& save, const SaveOptions& usual) {
  if (save.cancelled != nullptr) throw Error(ErrorCode::kInvalidArgument, kCancelByHandle);
  if (save.group != usual.group)
    throw Error(ErrorCode::kInvalidArgument, "the group is not the saver's: every group needs an AsyncSaver");
}

bool is_alone(const SaveOptions& save) {
  return save.group == nullptr || save.no_dist || save.group->size() == 1;
}

std::shared_future<void> already_done() {
  std::promise<void> done;
  done.set_value();
  return done.get_future().share();
}

}  // namespace

AsyncSaver::AsyncSaver(AsyncOptions options) try
    : options_(checked(std::move(options))),
      own_stager_(options_.stager == nullptr ? default_stager(options_.staging) : nullptr),
      stager_(options_.stager == nullptr ? own_stager_.get() : options_.stager),
      worker_(std::make_unique<Worker>(options_.nice, options_.io_priority)),
      exit_(std::make_unique<ProcessExit>([this] {
        end_saves();
        (void)worker_->wait_below(1, after(kToCleanUp));
      })) {
} catch (const Error&) {
  throw;
} catch (...) {
  throw current_error();  // no thread to be had, or no memory
}

AsyncSaver::~AsyncSaver() {
  if (!exit_->is_of_this_process()) {
    // Its threads run in the process this one was forked from, and may have held any lock at that moment.
    (void)exit_.release();
    (void)worker_.release();
    (void)own_stager_.release();
    return;
  }
  exit_.reset();
  end_saves();
}

void AsyncSaver::end_saves() noexcept {
  try {
    CAIRN_POINT("async.before_end");
    if (options_.at_exit == AtExit::kWait) (void)worker_->wait_below(1, after(options_.exit_patience));
    worker_->cancel_all();
  } catch (...) {
    // A lock that cannot be taken: the worker ends what it has.
  }
}

void AsyncSaver::stage(AsyncJob& job, const StateDict& state) {
  const bool may_wait = options_.on_full == OnFull::kWait;
  // Who says how to stage from devices need not say how to write what stays there.
  DeviceUse& devices = job.options.write.devices;
  if (devices.driver == nullptr) devices.driver = options_.staging.devices.driver;
  StageRequest request;
  request.overlapped = options_.mode == StagingMode::kOverlapped;
  request.deadline = may_wait ? after(options_.patience) : kAtOnce;
  try {
    job.snapshot = stager_->stage(state, request);
    job.staged = job.snapshot->whole;
    job.copied = job.snapshot->copied;
    job.to_stage = job.snapshot->bytes;
    devices.ordered = false;  // a snapshot waits for nobody
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kLimit || options_.on_full != OnFull::kWriteThrough) throw;
    job.live = &state;
    job.staged = already_done();
  }
}

SaveHandle AsyncSaver::submit(const std::function<const StateDict&()>& state, std::shared_ptr<AsyncJob> job) {
  try {
    const bool waits = options_.on_busy == OnBusy::kWait;
    const auto most = static_cast<std::size_t>(options_.max_in_flight);
    if (!worker_->wait_below(most, waits ? after(options_.patience) : kAtOnce)) {
      throw Error(waits ? ErrorCode::kTimeout : ErrorCode::kConflict,
                  fmt::format("{} saves have not ended yet, and no more may be under way: wait for one",
                              options_.max_in_flight));
    }
    worker_->surface_failure();
    CAIRN_POINT("async.before_stage");
    stage(*job, state());
    CAIRN_POINT("async.staged");
  } catch (...) {
    if (!is_alone(job->options)) {
      job->refusal = current_error();
      worker_->add(std::move(job));
    }
    throw;
  }
  worker_->add(job);
  if (job->live != nullptr) (void)job->wait(Clock::time_point::max());
  return SaveHandle(std::move(job));
}

SaveHandle AsyncSaver::async_save(const StateDict& state, const std::string& id) {
  return async_save(state, id, options_.save);
}

SaveHandle AsyncSaver::async_save(const StateDict& state, const std::string& id, const SaveOptions& save) {
  return with_typed_errors([&] {
    check(save, options_.save);
    return submit([&]() -> const StateDict& { return state; }, std::make_shared<AsyncJob>(id, save));
  });
}

SaveHandle AsyncSaver::async_save(AppState& state, const std::string& id) {
  StateDict expanded;
  return with_typed_errors([&] {
    return submit([&]() -> const StateDict& { return expanded = state.expand(); },
                  std::make_shared<AsyncJob>(id, options_.save));
  });
}

void AsyncSaver::prepare(const StateDict& state) { stager_->prepare(state); }

StepGuard AsyncSaver::guard() {
  stager_->synchronize();
  return {};
}

void AsyncSaver::wait(std::chrono::steady_clock::time_point deadline) {
  if (!worker_->wait_below(1, deadline))
    throw Error(ErrorCode::kTimeout, "not all saves have ended; they go on");
  worker_->surface_failure();
}

}  // namespace cairn
