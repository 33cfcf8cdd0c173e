// An operating system that fails, or does less than it was asked for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>

#include "os_calls.h"

namespace cairn::trial {

// The n-th call fails, alone or with all that follow.
class NthFails final : public OsWatcher {
 public:
  NthFails(std::uint64_t nth, bool for_ever, int os_error)
      : nth_(nth), for_ever_(for_ever), os_error_(os_error) {}
  OsResult on(const OsRequest& request, const OsProceed& proceed) override;

  std::uint64_t calls() const { return calls_; }
  std::uint64_t fired() const { return fired_; }
  std::string first_hit() const;  // "pwrite of 'run/step/x'": what failed first

 private:
  const std::uint64_t nth_;  // 0: none
  const bool for_ever_;
  const int os_error_;
  std::atomic<std::uint64_t> calls_ = 0;
  std::atomic<std::uint64_t> fired_ = 0;
  mutable std::mutex mutex_;
  std::string first_hit_;
};

// Every read and write moves fewer bytes than it could, or is interrupted before it moves any.
class Reluctant final : public OsWatcher {
 public:
  enum class Way : std::uint8_t { kOneByte, kHalf, kRandom, kInterrupted };
  Reluctant(Way way, std::uint64_t seed) : way_(way), random_(seed) {}
  OsResult on(const OsRequest& request, const OsProceed& proceed) override;
  std::uint64_t fired() const { return fired_; }

 private:
  std::size_t portion(std::size_t size);

  const Way way_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::atomic<std::uint64_t> fired_ = 0;
};
inline constexpr std::array kReluctantWays = {Reluctant::Way::kOneByte, Reluctant::Way::kHalf,
                                              Reluctant::Way::kRandom, Reluctant::Way::kInterrupted};

}  // namespace cairn::trial
