#include "background/async_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/trial.h"
#include "save/saving.h"

namespace cairn {
namespace {

bool is_ready(const std::shared_future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

AsyncJob::AsyncJob(std::string where, const SaveOptions& how)
    : id(std::move(where)), options(how), doing_(fmt::format("saving '{}' in the background", id)) {
  progress_.rank = options.group == nullptr || options.no_dist ? 0 : options.group->rank();
  options.cancelled = &cancelled;
  options.write.spare_cores = std::max(1, options.write.spare_cores);  // training goes on beside it
  options.progress = [this, user = how.progress](const Progress& progress) {
    note(progress);
    if (user) user(progress);
  };
}

void AsyncJob::note(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  progress_.phase = SavePhase::kWriting;
  progress_.written = progress.done;
  progress_.to_write = progress.total;
}

const StateDict& AsyncJob::state() {
  if (refusal) throw Error(*refusal);
  if (live != nullptr) return *live;
  staged.get();
  return snapshot->state;
}

void AsyncJob::run() {
  {
    const std::lock_guard lock(mutex_);
    progress_.phase = SavePhase::kPlanning;
  }
  try {
    CAIRN_POINT("async.before_save");
    result_ = run_save([this]() -> const StateDict& { return state(); }, id, options,
                       snapshot ? snapshot->check : nullptr);
    CAIRN_POINT("async.saved");
  } catch (Error& e) {
    e.while_doing(doing_);
    failure_ = std::current_exception();
  } catch (...) {
    failure_ = std::current_exception();
  }
  snapshot.reset();  // also waits for a copy that is still under way
  options.keep.reset();
}

void AsyncJob::publish() {
  const std::lock_guard lock(mutex_);
  progress_.phase = failure_ ? SavePhase::kFailed : SavePhase::kDone;
  ended_ = true;
  changed_.notify_all();
}

bool AsyncJob::wait(Time deadline) {
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return ended_; };
  if (deadline == Time::max()) {
    changed_.wait(lock, ended);
    return true;
  }
  return changed_.wait_until(lock, deadline, ended);
}

SaveResult AsyncJob::result() {
  const std::lock_guard lock(mutex_);
  if (!failure_) return result_;
  told_ = true;
  std::rethrow_exception(failure_);
}

bool AsyncJob::take_failure() {
  const std::lock_guard lock(mutex_);
  if (!ended_ || !failure_ || told_ || refusal || cancelled) return false;
  told_ = true;
  return true;
}

SaveProgress AsyncJob::progress() {
  const std::lock_guard lock(mutex_);
  SaveProgress now = progress_;
  const bool is_staged = is_ready(staged);
  now.to_stage = to_stage;
  now.staged = is_staged || !copied ? to_stage : copied->load();
  if (now.phase == SavePhase::kStaging && is_staged) now.phase = SavePhase::kQueued;
  if (now.phase == SavePhase::kPlanning && !is_staged) now.phase = SavePhase::kStaging;
  return now;
}

}  // namespace cairn
