// Policies as people write them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/near_names.h"
#include "cairn/error.h"
#include "cairn/keep.h"
#include "runs/words.h"

namespace cairn {
namespace {

// What people write: rules with numbers, words and durations in them, joined by '|' and '&'.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text.size() > kMostText) fail(fmt::format("longer than {} bytes", kMostText));
  }

  Keep parse() {
    skip();
    if (at_ == text_.size()) return Keep(nullptr);
    Keep rule = alternatives(0);
    if (at_ < text_.size()) fail("'|' or '&' is expected");
    return rule;
  }

 private:
  static constexpr std::size_t kMostText = 1 << 16;
  static constexpr int kMostDepth = 50;

  Keep alternatives(int depth) {
    Keep rule = all_of(depth);
    while (take('|')) rule = rule | all_of(depth);
    return rule;
  }
  Keep all_of(int depth) {
    Keep rule = one(depth);
    while (take('&')) rule = rule & one(depth);
    return rule;
  }
  Keep one(int depth) {
    if (!take('(')) return rule();
    if (depth == kMostDepth) fail("too many parentheses within each other");
    Keep inner = alternatives(depth + 1);
    require(')');
    return inner;
  }

  Keep rule() {
    const std::size_t begin = at_;
    const std::string name = word();
    require('(');
    Keep made = rule(name, begin);
    require(')');
    return made;
  }

  Keep rule(const std::string& name, std::size_t begin) {
    if (name == "last") return last(number());
    if (name == "every") return every(number());
    if (name == "every_seconds") return every(std::chrono::seconds(number()));
    if (name == "newer_than") return newer_than(duration());
    if (name == "tagged") return tagged(word());
    if (name == "steps") return steps(numbers());
    if (name == "best") {
      std::string metric = word();
      require(',');
      const std::int64_t count = number();
      return best(std::move(metric), count, take(',') ? better() : Better::kLower);
    }
    at_ = begin;
    const auto near = near_names(name, kRules.size(), [](std::size_t i) { return kRules[i]; });
    fail(fmt::format("there is no rule '{}'{}; known are {}", name, did_you_mean(near),
                     fmt::join(kRules, ", ")));
  }

  Better better() {
    const std::size_t begin = at_;
    const std::string which = word();
    if (which == "max") return Better::kHigher;
    if (which == "min") return Better::kLower;
    at_ = begin;
    fail("'min' or 'max' is expected");
  }

  std::set<std::int64_t> numbers() {
    std::set<std::int64_t> found;
    do found.insert(number());
    while (take(','));
    return found;
  }

  std::int64_t number() {
    skip();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fail("the number is too large");
    if (error != std::errc()) fail("a number is expected");
    at_ = static_cast<std::size_t>(end - text_.data());
    skip();
    return value;
  }

  // "7d", "1d12h"; plain numbers are seconds.
  std::chrono::seconds duration() {
    constexpr std::string_view kUnits = "smhdw";
    constexpr std::int64_t kSeconds[] = {1, 60, 3600, 86400, 604800};
    std::int64_t sum = 0;
    do {
      const std::size_t begin = at_;
      const std::int64_t value = number();
      const std::size_t unit = at_ < text_.size() ? kUnits.find(text_[at_]) : kUnits.npos;
      if (unit != kUnits.npos) ++at_;
      const std::int64_t seconds = unit == kUnits.npos ? 1 : kSeconds[unit];
      if (value < 0 || value > kMostSeconds / seconds || sum > kMostSeconds - value * seconds) {
        at_ = begin;
        fail("an age like 12h, 7d or 2w is expected");
      }
      sum += value * seconds;
      skip();
    } while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9');
    return std::chrono::seconds(sum);
  }

  std::string word() {
    skip();
    std::string found;
    if (at_ < text_.size() && text_[at_] == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
        found += text_[at_];
      }
      if (at_ == text_.size()) fail("the quotation has no end");
      ++at_;
    } else {
      while (at_ < text_.size() && is_plain(text_[at_])) found += text_[at_++];
      if (found.empty()) fail("a name is expected");
    }
    skip();
    return found;
  }

  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip();
    return true;
  }
  void require(char c) {
    if (!take(c)) fail(fmt::format("'{}' is expected", c));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }

  [[noreturn]] void fail(const std::string& why) const {
    const std::size_t shown = std::min<std::size_t>(at_, text_.size());
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("policy '{}', at '{}': {}", text_.substr(0, 200), text_.substr(shown, 20), why));
  }

  static constexpr std::array<std::string_view, 7> kRules = {"last",       "every", "every_seconds", "best",
                                                             "newer_than", "steps", "tagged"};
  static constexpr std::int64_t kMostSeconds = std::int64_t{100} * 366 * 86400;

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Keep Keep::parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace cairn
