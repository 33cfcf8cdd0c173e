#include "storage/s3/lock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"
#include "cairn/error.h"
#include "storage/s3/objects.h"

namespace cairn::s3 {
namespace {

constexpr std::string_view kHeld = ".cairn-held.";
constexpr std::size_t kDigitsOfHolder = 16;
constexpr std::chrono::seconds kAfterFailure(10);

}  // namespace

std::optional<std::string> lock_of_holder(std::string_view name) {
  if (name.size() <= kHeld.size() + kDigitsOfHolder) return std::nullopt;
  name.remove_suffix(kDigitsOfHolder);
  if (!name.ends_with(kHeld)) return std::nullopt;
  name.remove_suffix(kHeld.size());
  return std::string(name);
}

ObjectLock::ObjectLock(std::shared_ptr<Bucket> bucket, std::string lock, std::chrono::milliseconds renewal)
    : bucket_(std::move(bucket)),
      lock_(std::move(lock)),
      key_(fmt::format("{}{}{:016x}", lock_, kHeld, random_number())),
      renewal_(renewal),
      owner_(::getpid()) {
  if (!bucket_->take(lock_))
    throw Error(ErrorCode::kConflict, "somebody else in this process holds this lock")
        .in_file(bucket_->client().shown(lock_));
  try {
    write();
    thread_ = std::make_unique<std::thread>([this] { renew_until_given_back(); });
  } catch (...) {
    bucket_->give_back(lock_);
    throw;
  }
}

ObjectLock::~ObjectLock() {
  if (owner_ != ::getpid()) {
    (void)thread_.release();  // it runs in the parent, and so does the lock
    return;
  }
  {
    const std::lock_guard guard(mutex_);
    given_back_ = true;
  }
  woken_.notify_all();
  thread_->join();
  try {
    remove(bucket_->client(), {key_});
  } catch (...) {
    // It is not renewed any more: that tells enough.
  }
  bucket_->give_back(lock_);
}

void ObjectLock::write() {
  Client& client = bucket_->client();
  put(client, key_, as_bytes("held\n"), {}, false);
  renewed_ = client.server_time();
}

void ObjectLock::renew_until_given_back() {
  auto wait = renewal_;
  std::unique_lock guard(mutex_);
  while (!woken_.wait_for(guard, wait, [&] { return given_back_; })) {
    guard.unlock();
    try {
      write();
      wait = renewal_;
    } catch (...) {
      wait = std::min<std::chrono::milliseconds>(renewal_, kAfterFailure);
    }
    guard.lock();
  }
}

bool ObjectLock::is_alone() const {
  Client& client = bucket_->client();
  const Listing holders = list(client, lock_ + std::string(kHeld), false);
  const auto dead = client.server_time() - kAlive;
  return std::none_of(holders.objects.begin(), holders.objects.end(), [&](const Listed& holder) {
    return holder.key != key_ && lock_of_holder(holder.key) == lock_ && holder.modified > dead;
  });
}

}  // namespace cairn::s3
