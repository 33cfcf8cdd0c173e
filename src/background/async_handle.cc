#include <fmt/format.h>

#include <array>
#include <utility>

#include "background/async_job.h"

namespace cairn {
namespace {

Error late(const std::string& id, std::string_view what) {
  return Error(ErrorCode::kTimeout, fmt::format("the save of '{}' is not {} yet; it goes on", id, what));
}

}  // namespace

std::string_view name_of(SavePhase phase) {
  constexpr std::array<std::string_view, 6> kNames = {"staging", "queued", "planning",
                                                      "writing", "done",   "failed"};
  return kNames.at(static_cast<std::size_t>(phase));
}

SaveHandle::SaveHandle(std::shared_ptr<AsyncJob> job) : job_(std::move(job)) {}

const std::string& SaveHandle::id() const { return job_->id; }

bool SaveHandle::staging_done() const {
  return job_->staged.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

bool SaveHandle::written_through() const { return job_->live != nullptr; }

void SaveHandle::wait_staged(Time deadline) const {
  if (deadline != Time::max() && job_->staged.wait_until(deadline) != std::future_status::ready)
    throw late(job_->id, "staged");
  job_->staged.get();
}

SaveResult SaveHandle::wait(Time deadline) const {
  if (!job_->wait(deadline)) throw late(job_->id, "done");
  return job_->result();
}

bool SaveHandle::done() const { return job_->wait(Time()); }

void SaveHandle::cancel() const { job_->cancelled = true; }

SaveProgress SaveHandle::progress() const { return job_->progress(); }

StepGuard SaveHandle::guard() const {
  job_->staged.wait();
  return {};
}

}  // namespace cairn
