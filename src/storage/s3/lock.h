// Who is at work in a folder, by an object that is written again and again while somebody is.
//
// Nobody is kept out but within this process: a lock of a dead process would keep others out for as long as
// it takes to be sure that it is dead. Commits are kept apart by other means (generations.h). What these
// locks are for is to tell what dead saves left behind from what is being written.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "cairn/storage.h"
#include "storage/s3/bucket.h"

namespace cairn::s3 {

inline constexpr std::chrono::minutes kRenewal(2);
// Whoever has not renewed his lock for this long, by the server's clock, is dead.
inline constexpr std::chrono::hours kAlive(1);

class ObjectLock final : public FileLock {
 public:
  // Error(kConflict) when it is held in this process.
  ObjectLock(std::shared_ptr<Bucket> bucket, std::string lock, std::chrono::milliseconds renewal = kRenewal);
  ~ObjectLock() override;

  bool is_exclusive() const override { return false; }
  bool is_alone() const override;
  std::optional<std::chrono::system_clock::time_point> renewed() const override { return renewed_.load(); }

 private:
  void renew_until_given_back();
  void write();

  const std::shared_ptr<Bucket> bucket_;
  const std::string lock_;  // the key that all holders share the beginning of
  const std::string key_;
  const std::chrono::milliseconds renewal_;
  const pid_t owner_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool given_back_ = false;
  std::atomic<std::chrono::system_clock::time_point> renewed_;
  std::unique_ptr<std::thread> thread_;
};

// "lock.cairn-held.0123456789abcdef" -> "lock"; nullopt for other names.
std::optional<std::string> lock_of_holder(std::string_view name);

}  // namespace cairn::s3
