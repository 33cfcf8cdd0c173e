// Which steps of a run stay: a plain value.
//
//   const Keep keep = last(3) | every(1000) | best("loss", 2);
//   keep == Keep::parse("last(3)|every(1000)|best(loss,2)");      // as people and files say it
//
// It is a pure function of what is known of the steps and of the time: of the same ones it keeps the same,
// whoever asks. What nobody may lose (the newest step, one that somebody reads) is not its business.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// What a policy goes by. All of them are complete checkpoints.
struct StepFacts {
  std::int64_t step = 0;
  std::chrono::system_clock::time_point when = {};  // it was committed
  std::map<std::string, double, std::less<>> metrics = {};
  std::set<std::string, std::less<>> tags = {};
  bool abandoned = false;  // somebody went back to before it
};

class Keep {
 public:
  // "last(3)|every(1000)&newer_than(7d)": `&` binds more tightly, parentheses group. Error(kInvalidArgument)
  // with the place and what is known. Nothing is kept by an empty text.
  static Keep parse(std::string_view text);
  std::string text() const;  // parse() makes the same of it
  bool operator==(const Keep& other) const { return text() == other.text(); }

  // For each step, in their order, the parts of the policy that keep it ("last(3)", "best(loss,2)"); none:
  // it goes. `steps` ascend.
  std::vector<std::vector<std::string>> reasons(std::span<const StepFacts> steps,
                                                std::chrono::system_clock::time_point now) const;

  struct Rule;  // how it is kept is nobody's business
  explicit Keep(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}

 private:
  friend Keep operator|(const Keep& a, const Keep& b);  // what either keeps
  friend Keep operator&(const Keep& a, const Keep& b);  // what both keep
  std::shared_ptr<const Rule> rule_;                    // null: nothing
};

enum class Better : std::uint8_t { kLower, kHigher };

Keep last(std::int64_t count);          // the highest steps; those that were abandoned do not count
Keep every(std::int64_t steps);         // the first one in each [k n, (k + 1) n)
Keep every(std::chrono::seconds time);  // the same by the time of the commit: every_seconds(3600)
// By a metric that was recorded; of two that are equal the later one, and never what is not a number.
Keep best(std::string metric, std::int64_t count, Better better = Better::kLower);
Keep newer_than(std::chrono::seconds age);  // newer_than(7d): s, m, h, d, w
Keep steps(std::set<std::int64_t> which);
Keep tagged(std::string tag);

}  // namespace cairn
