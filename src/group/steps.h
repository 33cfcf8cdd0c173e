// The steps that ranks take together, each of which fails on all of them or on none.
//
// A rank that fails in a step still takes part in the exchange: its error travels as data in place of its
// result. Every rank then throws the same CheckpointError, with what failed on which rank. Only a rank that
// cannot be reached is different: it is missing, and the coordinator says so to the others.
//
//   Steps steps(group, 0, deadline);
//   std::string mine = steps.reduce_scatter("plan", [&] { return encode(plan()); },
//                                           [&](std::vector<std::string> all) { return decide(all); });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.h"
#include "cairn/group.h"

namespace cairn {

// What a rank's part of a step begins with; its error follows a kFailedPart.
inline constexpr char kGoodPart = 'R';
inline constexpr char kFailedPart = 'E';
inline constexpr char kStoppedPart = 'S';

// The failures of ranks as bytes. Whoever sends them is not trusted: Error(kCorrupt).
std::string encode_error(const Error& error);
Error decode_error(std::string_view bytes);

// A rank that never heard how a step ended: it may have failed, or been done on all other ranks.
class UnheardError final : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// This rank stopped because the step has failed on another one: no failure of its own.
class StoppedError final : public Error {
 public:
  StoppedError() : Error(ErrorCode::kCancelled, "the save was cancelled") {}
};

// One save's or load's exchanges, in order. Used by one thread.
class Steps {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // All ranks give the same deadline; the steps of one group never run side by side.
  Steps(Group& group, int coordinator, Time deadline);
  static Time deadline_after(std::chrono::nanoseconds time);  // from now; the end of time when that is later

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool is_coordinator() const { return rank() == coordinator_; }
  int coordinator() const { return coordinator_; }
  Time deadline() const { return deadline_; }
  std::uint64_t bytes_exchanged() const { return bytes_; }
  Group& group() { return group_; }
  // Of the step that comes next, or whose map runs now: the exchange in which the coordinator gathers the
  // parts.
  Step gathering() const { return {number_ + 1, deadline_}; }

  using Map = std::function<std::string()>;
  // `map` runs on every rank, `reduce` on the coordinator with what all of them returned, by rank; each rank
  // gets its element of what reduce returned.
  std::string reduce_scatter(std::string_view step, const Map& map,
                             const std::function<std::vector<std::string>(std::vector<std::string>)>& reduce);
  // The same, with one result for all.
  std::string all_reduce(std::string_view step, const Map& map,
                         const std::function<std::string(std::vector<std::string>)>& reduce);
  // Everybody's result to everybody.
  std::vector<std::string> all_gather(std::string_view step, const Map& map);
  // The coordinator's result to everybody.
  std::string broadcast(std::string_view step, const Map& map);

 private:
  // What a rank brings to a step: its result, or why it has none.
  struct Part {
    std::string bytes;
    std::optional<Error> error;
    bool stopped = false;  // for another rank's failure
  };
  Part run(const Map& map);
  std::vector<std::string> collect(Part mine);
  Step next(std::chrono::nanoseconds grace = {});
  // The coordinator's verdict reaches everybody. `answers` is empty when there are failures. Elsewhere
  // `failures` says why this rank's part was not sent, if it was not.
  std::string settle(std::string_view step, std::vector<std::string> answers,
                     const std::map<int, Error>& failures);
  // `unsent`: why this rank's own part has not reached the coordinator, when it has not.
  std::string hear(std::string_view step, const std::map<int, Error>& unsent,
                   const std::function<std::string()>& receive);

  Group& group_;
  std::shared_ptr<void> alive_;  // from the first exchange to the last, and in between
  int coordinator_;
  Time deadline_;
  std::uint64_t number_;
  std::uint64_t bytes_ = 0;
};

}  // namespace cairn
