// What verify finds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/parallel.h"
#include "upkeep/verify_steps.h"

namespace cairn {
namespace {

// What this process lacks says nothing about the file.
bool is_ours(int os_error) { return os_error == ENOMEM || os_error == EMFILE || os_error == ENFILE; }

}  // namespace

std::string_view name_of(ProblemKind kind) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "missing",   "short",       "long",      "flipped",    "swapped",   "foreign",
      "uncovered", "overlapping", "misplaced", "mismatched", "unreadable"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const Problem& problem) {
  std::string text;
  if (!problem.file.empty()) text += problem.file + ": ";
  if (!problem.tensor.empty()) text += fmt::format("'{}': ", problem.tensor);
  if (problem.offset) text += fmt::format("at byte {}: ", *problem.offset);
  return text + fmt::format("{} ({})", problem.text, name_of(problem.kind));
}

int Findings::threads() const { return options_.threads > 0 ? options_.threads : core_count(); }

void Findings::add(Problem problem) {
  const std::lock_guard lock(mutex_);
  if (problems_.size() >= kMostProblems) {
    ++left_out_;
  } else {
    problems_.push_back(std::move(problem));
  }
}

void Findings::add_unreadable(const std::string& file, const Error& e, std::string tensor, ProblemKind kind) {
  if (is_ours(e.os_error())) throw Error(e);
  std::string text = e.message();
  if (e.os_error() != 0) text += fmt::format(": {}", std::strerror(e.os_error()));
  add({kind, file, std::move(tensor), e.offset(), std::move(text)});
}

void Findings::add_checked(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  checked_ += bytes;
}

void Findings::add_unchecked(std::string_view why, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Unchecked& known : unchecked_) {
    if (known.why == why) {
      known.bytes += bytes;
      return;
    }
  }
  unchecked_.push_back({std::string(why), bytes});
}

void Findings::pass(std::uint64_t bytes) {
  const std::lock_guard lock(progress_mutex_);
  done_ += bytes;
  if (options_.progress) options_.progress({"verify", std::min(done_, total_), total_});
}

VerifyReport Findings::finish(VerifyReport counts) {
  std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.file, a.offset, a.tensor) < std::tie(b.file, b.offset, b.tensor);
  });
  counts.problems = std::move(problems_);
  counts.problems_left_out = left_out_;
  counts.unchecked = std::move(unchecked_);
  counts.bytes_checked = checked_;
  return counts;
}

}  // namespace cairn
