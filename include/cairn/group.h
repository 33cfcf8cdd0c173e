// Ranks that talk: what a save or a load needs of TCP, of MPI, or of threads in one process.
//
// Every operation is collective: all ranks of the group call it with the same Step and the same root, each
// from one thread at a time. Every wait ends at the step's deadline. Bytes go in and come out; what they mean
// is the caller's business, failures included, so that nobody is left waiting for a rank that failed.
//
//   run_ranks(4, [](Group& group) {
//     const Step step{.number = 1, .deadline = Step::in(std::chrono::seconds(30))};
//     std::vector<std::string> all = group.all_gather("hello from " + std::to_string(group.rank()), step);
//   });
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

// Which exchange this is, and until when it may take.
//
// Numbers grow from one exchange to the next and are the same on all ranks. A message of an older step, from
// a rank that was thought dead, is dropped; a rank that comes too late learns it from the newer number it
// meets.
struct Step {
  std::uint64_t number = 0;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  static std::chrono::steady_clock::time_point in(std::chrono::nanoseconds time) {
    return std::chrono::steady_clock::now() + time;
  }
};

// One rank's end of a group.
//
// Errors name the rank that was waited for: kTimeout at the deadline, kConflict when it is at a newer step,
// kCancelled when it has left the group.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The root gets everybody's bytes, by rank; the others an empty list.
  virtual std::vector<std::string> gather(std::string mine, int root, const Step& step) = 0;
  // Rank i gets all[i], which only the root needs to give.
  virtual std::string scatter(std::vector<std::string> all, int root, const Step& step) = 0;
  virtual std::string broadcast(std::string bytes, int root, const Step& step) = 0;
  virtual std::vector<std::string> all_gather(std::string mine, const Step& step) = 0;
  virtual void barrier(const Step& step) = 0;

  // Looking ahead, so that nobody works on in vain for a step that has failed elsewhere. A group that cannot
  // do it says so, and nothing else depends on it.
  virtual bool looks_ahead() const { return false; }
  // The first byte of what `from` has sent in this step, when it has come; it stays where it is.
  virtual std::optional<char> peek(int /*from*/, const Step& /*step*/) { return std::nullopt; }
  // A byte that only peek() sees on rank `to`: it is gone with the next step.
  virtual void hint(int /*to*/, char /*byte*/, const Step& /*step*/) {}

  // For a group that gives up on a rank which is silent for too long: until the answer is let go, those who
  // wait for this rank hear that it is at work. A save or load holds one from its first step to its last.
  virtual std::shared_ptr<void> stay_alive() { return nullptr; }

  // The first step number of a save or load; grows from one to the next. All ranks take part in the same
  // saves and loads, so all count alike, also after one that failed.
  std::uint64_t begin_operation() { return ++operations_ << 16; }

 private:
  std::atomic<std::uint64_t> operations_ = 0;
};

// The group of one.
std::unique_ptr<Group> solo_group();

// Ranks in one process, for tests and small tools: element i is rank i's end, to be used by one thread.
std::vector<std::unique_ptr<Group>> thread_groups(int size);

// Runs `body` on `size` ranks, a thread each, and returns when all are done. What a rank throws is thrown
// here, the lowest rank's first.
void run_ranks(int size, const std::function<void(Group&)>& body);

}  // namespace cairn
