// What every Group promises, as a program that all of its ranks run together.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/error.h"
#include "cairn/group.h"

namespace cairn {
namespace group_check {

inline void expect(bool good, const char* what, const Group& group) {
  if (!good)
    throw Error(ErrorCode::kInternal, fmt::format("{} (rank {} of {})", what, group.rank(), group.size()));
}

// Different for every pair of numbers, and of very different sizes.
inline std::string letter(int from, int to, std::size_t size) {
  std::string text(size, static_cast<char>('a' + (from * 7 + to) % 26));
  return text + fmt::format(" {} {}", from, to);
}

// What has come can be seen before it is taken; a hint is seen and never taken.
inline void check_looking_ahead(Group& group, const Step& step, const Step& after) {
  if (!group.looks_ahead()) return;
  const auto seen = [&](int from, char expected) {
    for (std::optional<char> byte; byte != expected; byte = group.peek(from, step)) {
      expect(std::chrono::steady_clock::now() < step.deadline, "what was sent can be seen", group);
      std::this_thread::yield();
    }
  };
  const int last = group.size() - 1;
  for (int to = 1; to <= last && group.rank() == 0; ++to) group.hint(to, '!', step);
  if (group.rank() != 0) seen(0, '!');
  if (group.rank() != 0) group.gather("mine", 0, step);
  for (int from = 1; from <= last && group.rank() == 0; ++from) seen(from, 'm');
  if (group.rank() == 0) {
    const std::vector<std::string> all = group.gather("mine", 0, step);
    for (const std::string& one : all) expect(one == "mine", "what was seen is still there", group);
  }
  const std::string said = group.scatter(
      group.rank() == 0 ? std::vector<std::string>(static_cast<std::size_t>(group.size()), "after")
                        : std::vector<std::string>(),
      0, after);
  expect(said == "after", "a hint is gone with the next step", group);
}

}  // namespace group_check

// Throws Error(kInternal) with what was wrong. Uses the steps from `first_step` on, returns the next unused
// one.
inline std::uint64_t check_group(Group& group, std::uint64_t first_step) {
  using group_check::expect;
  using group_check::letter;
  std::uint64_t number = first_step;
  const auto next = [&] { return Step{number++, Step::in(std::chrono::seconds(60))}; };
  const int rank = group.rank();
  const int size = group.size();
  expect(size >= 1 && rank >= 0 && rank < size, "a rank lies inside its group", group);

  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{1} << 18}) {
    for (int root = 0; root < size; ++root) {
      const std::vector<std::string> all = group.gather(letter(rank, root, bytes), root, next());
      expect(all.size() == (rank == root ? static_cast<std::size_t>(size) : 0), "only the root gathers",
             group);
      for (std::size_t from = 0; from < all.size(); ++from)
        expect(all[from] == letter(static_cast<int>(from), root, bytes), "gather brings all, by rank", group);

      std::vector<std::string> letters;
      for (int to = 0; to < size && rank == root; ++to) letters.push_back(letter(root, to, bytes));
      expect(group.scatter(std::move(letters), root, next()) == letter(root, rank, bytes),
             "scatter brings each rank its own", group);

      const std::string said = group.broadcast(rank == root ? letter(root, 0, bytes) : "", root, next());
      expect(said == letter(root, 0, bytes), "broadcast brings all the same", group);
    }
    const std::vector<std::string> all = group.all_gather(letter(rank, 0, bytes), next());
    expect(all.size() == static_cast<std::size_t>(size), "all_gather brings as many as there are ranks",
           group);
    for (int from = 0; from < size; ++from)
      expect(all[static_cast<std::size_t>(from)] == letter(from, 0, bytes), "all_gather brings all, by rank",
             group);
    group.barrier(next());
  }
  const Step step = next();
  group_check::check_looking_ahead(group, step, next());
  for (int i = 0; i < 200; ++i) group.barrier(next());  // quick ones do not run into each other
  return number;
}

}  // namespace cairn
