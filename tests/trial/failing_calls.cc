#include "failing_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace cairn::trial {
namespace {

// Those that POSIX lets a signal interrupt. fsync and close are left out: after a failed one nobody knows
// what is on the disk, so that it must not be tried again.
bool may_be_interrupted(const OsRequest& request) {
  const std::string_view function = request.function;
  return request.call == OsCall::kOpen || request.call == OsCall::kRead || request.call == OsCall::kWrite ||
         request.call == OsCall::kTruncate || request.call == OsCall::kAllocate ||
         request.call == OsCall::kLock || function == "fstatvfs";
}

}  // namespace

OsResult NthFails::on(const OsRequest& request, const OsProceed& proceed) {
  const std::uint64_t call = ++calls_;
  const bool fails = nth_ > 0 && (call == nth_ || (for_ever_ && call > nth_));
  if (!fails) return proceed();
  if (++fired_ == 1) {
    const std::lock_guard lock(mutex_);
    first_hit_ = fmt::format("{} of '{}'", request.function, request.path);
  }
  return OsResult::failure(os_error_);
}

std::string NthFails::first_hit() const {
  const std::lock_guard lock(mutex_);
  return first_hit_;
}

std::size_t Reluctant::portion(std::size_t size) {
  if (size < 2 || way_ == Way::kOneByte) return 1;
  if (way_ == Way::kHalf) return size / 2;
  const std::lock_guard lock(mutex_);
  return 1 + random_() % size;
}

OsResult Reluctant::on(const OsRequest& request, const OsProceed& proceed) {
  if (way_ == Way::kInterrupted) {
    thread_local bool interrupted = false;
    if (!may_be_interrupted(request)) return proceed();
    interrupted = !interrupted;
    if (!interrupted) return proceed();
    ++fired_;
    return OsResult::failure(EINTR);
  }
  const bool moves = request.call == OsCall::kRead || request.call == OsCall::kWrite;
  if (!moves || request.size == 0) return proceed();
  ++fired_;
  return proceed(portion(request.size));
}

}  // namespace cairn::trial
