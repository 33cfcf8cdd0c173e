#include "cairn/keep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cairn/error.h"
#include "runs/words.h"

namespace cairn {

using Facts = std::span<const StepFacts>;
using Kept = std::vector<bool>;
using Instant = std::chrono::system_clock::time_point;

struct Keep::Rule {
  virtual ~Rule() = default;
  virtual std::string text() const = 0;
  virtual Kept keep(Facts steps, Instant now) const = 0;
  // Of which each alone keeps what it keeps; null: it is one rule.
  virtual const std::vector<std::shared_ptr<const Rule>>* alternatives() const { return nullptr; }
};

namespace {

using RulePtr = std::shared_ptr<const Keep::Rule>;

void require_positive(std::int64_t number, std::string_view what) {
  if (number <= 0)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}({}): a number above 0 is needed", what, number));
}

// The largest unit that divides it.
std::string text_of(std::chrono::seconds time) {
  constexpr std::pair<std::int64_t, char> kUnits[] = {
      {604800, 'w'}, {86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
  for (const auto& [seconds, unit] : kUnits)
    if (time.count() % seconds == 0) return fmt::format("{}{}", time.count() / seconds, unit);
  return {};
}

struct Last final : Keep::Rule {
  explicit Last(std::int64_t its_count) : count(its_count) { require_positive(count, "last"); }
  std::string text() const override { return fmt::format("last({})", count); }
  Kept keep(Facts steps, Instant) const override {
    Kept kept(steps.size());
    std::int64_t left = count;
    for (std::size_t i = steps.size(); i-- > 0 && left > 0;) {
      if (steps[i].abandoned) continue;
      kept[i] = true;
      --left;
    }
    return kept;
  }
  std::int64_t count;
};

// The first of each interval of something that is counted.
template <class Count> Kept first_of_each(Facts steps, Count&& count, std::int64_t interval) {
  Kept kept(steps.size());
  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t at = count(steps[i]);
    kept[i] = seen.insert(at / interval - (at % interval < 0 ? 1 : 0)).second;
  }
  return kept;
}

struct Every final : Keep::Rule {
  explicit Every(std::int64_t its_steps) : interval(its_steps) { require_positive(interval, "every"); }
  std::string text() const override { return fmt::format("every({})", interval); }
  Kept keep(Facts steps, Instant) const override {
    return first_of_each(
        steps, [](const StepFacts& each) { return each.step; }, interval);
  }
  std::int64_t interval;
};

struct EverySeconds final : Keep::Rule {
  explicit EverySeconds(std::int64_t its_seconds) : seconds(its_seconds) {
    require_positive(seconds, "every_seconds");
  }
  std::string text() const override { return fmt::format("every_seconds({})", seconds); }
  Kept keep(Facts steps, Instant) const override {
    return first_of_each(
        steps,
        [](const StepFacts& each) {
          return std::chrono::floor<std::chrono::seconds>(each.when).time_since_epoch().count();
        },
        seconds);
  }
  std::int64_t seconds;
};

struct Best final : Keep::Rule {
  Best(std::string its_metric, std::int64_t its_count, Better its_better)
      : metric(std::move(its_metric)), count(its_count), better(its_better) {
    require_positive(count, "best");
  }
  std::string text() const override {
    return fmt::format("best({},{}{})", quoted_if_needed(metric), count,
                       better == Better::kHigher ? ",max" : "");
  }
  Kept keep(Facts steps, Instant) const override {
    std::vector<std::pair<double, std::size_t>> found;  // the lower the better
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto value = steps[i].metrics.find(metric);
      if (value == steps[i].metrics.end() || std::isnan(value->second)) continue;
      found.emplace_back(better == Better::kLower ? value->second : -value->second, i);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    Kept kept(steps.size());
    for (std::size_t i = 0; i < found.size() && static_cast<std::int64_t>(i) < count; ++i)
      kept[found[i].second] = true;
    return kept;
  }
  std::string metric;
  std::int64_t count;
  Better better;
};

struct NewerThan final : Keep::Rule {
  explicit NewerThan(std::chrono::seconds its_age) : age(its_age) {
    require_positive(age.count(), "newer_than");
  }
  std::string text() const override { return fmt::format("newer_than({})", text_of(age)); }
  Kept keep(Facts steps, Instant now) const override {
    Kept kept(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) kept[i] = steps[i].when > now - age;
    return kept;
  }
  std::chrono::seconds age;
};

struct Steps final : Keep::Rule {
  explicit Steps(std::set<std::int64_t> its_steps) : which(std::move(its_steps)) {}
  std::string text() const override { return fmt::format("steps({})", fmt::join(which, ",")); }
  Kept keep(Facts steps, Instant) const override {
    Kept kept(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) kept[i] = which.contains(steps[i].step);
    return kept;
  }
  std::set<std::int64_t> which;
};

struct Tagged final : Keep::Rule {
  explicit Tagged(std::string its_tag) : tag(std::move(its_tag)) {}
  std::string text() const override { return fmt::format("tagged({})", quoted_if_needed(tag)); }
  Kept keep(Facts steps, Instant) const override {
    Kept kept(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) kept[i] = steps[i].tags.contains(tag);
    return kept;
  }
  std::string tag;
};

// What any or all of its parts keep.
struct Joined final : Keep::Rule {
  Joined(bool its_any, std::vector<RulePtr> its_parts) : any(its_any), parts(std::move(its_parts)) {}
  std::string text() const override {
    std::vector<std::string> texts;
    for (const RulePtr& part : parts)
      texts.push_back(part->alternatives() != nullptr ? "(" + part->text() + ")" : part->text());
    return fmt::format("{}", fmt::join(texts, any ? "|" : "&"));
  }
  Kept keep(Facts steps, Instant now) const override {
    Kept kept(steps.size(), !any);
    for (const RulePtr& part : parts) {
      const Kept more = part->keep(steps, now);
      for (std::size_t i = 0; i < steps.size(); ++i) kept[i] = any ? kept[i] || more[i] : kept[i] && more[i];
    }
    return kept;
  }
  const std::vector<RulePtr>* alternatives() const override { return any ? &parts : nullptr; }
  bool any;
  std::vector<RulePtr> parts;
};

// Of two policies one, without parentheses that mean nothing.
RulePtr join(bool any, const RulePtr& a, const RulePtr& b) {
  if (a == nullptr) return any ? b : nullptr;
  if (b == nullptr) return any ? a : nullptr;
  std::vector<RulePtr> parts;
  for (const RulePtr& each : {a, b}) {
    const auto* const inner = any ? each->alternatives() : nullptr;
    if (inner == nullptr)
      parts.push_back(each);
    else
      parts.insert(parts.end(), inner->begin(), inner->end());
  }
  return std::make_shared<Joined>(any, std::move(parts));
}

}  // namespace

std::string Keep::text() const { return rule_ == nullptr ? "" : rule_->text(); }

std::vector<std::vector<std::string>> Keep::reasons(std::span<const StepFacts> steps,
                                                    std::chrono::system_clock::time_point now) const {
  std::vector<std::vector<std::string>> reasons(steps.size());
  if (rule_ == nullptr) return reasons;
  const auto* const alternatives = rule_->alternatives();
  for (const RulePtr& rule : alternatives == nullptr ? std::vector{rule_} : *alternatives) {
    const Kept kept = rule->keep(steps, now);
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (kept[i]) reasons[i].push_back(rule->text());
  }
  return reasons;
}

Keep operator|(const Keep& a, const Keep& b) { return Keep(join(true, a.rule_, b.rule_)); }
Keep operator&(const Keep& a, const Keep& b) { return Keep(join(false, a.rule_, b.rule_)); }

Keep last(std::int64_t count) { return Keep(std::make_shared<Last>(count)); }
Keep every(std::int64_t steps) { return Keep(std::make_shared<Every>(steps)); }
Keep every(std::chrono::seconds time) { return Keep(std::make_shared<EverySeconds>(time.count())); }
Keep best(std::string metric, std::int64_t count, Better better) {
  return Keep(std::make_shared<Best>(std::move(metric), count, better));
}
Keep newer_than(std::chrono::seconds age) { return Keep(std::make_shared<NewerThan>(age)); }
Keep steps(std::set<std::int64_t> which) { return Keep(std::make_shared<Steps>(std::move(which))); }
Keep tagged(std::string tag) { return Keep(std::make_shared<Tagged>(std::move(tag))); }

}  // namespace cairn
