#include "crash_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "random.h"

namespace cairn::trial {
namespace {

using Kind = TraceStep::Kind;

constexpr std::uint64_t kSector = 512;
constexpr std::uint64_t kPage = 4096;
constexpr int kMissesInARow = 2000;  // then there is nothing left to be found at random

// What becomes of a step. Every step may be lost or done; the others are for some.
enum Fate : int { kLost, kDone, kBothNames = 2, kLengthAlone = 2, kTornSectors, kTornPages };

int fates_of(const TraceStep& step) {
  if (step.kind == Kind::kRename) return kBothNames + 1;
  if (step.kind != Kind::kWrite) return kDone + 1;
  return step.size > kPage ? kTornPages + 1 : step.size > kSector ? kTornSectors + 1 : kLengthAlone + 1;
}

// The moment before steps[end], or after all of them.
struct Point {
  std::size_t end = 0;
  bool reported = false;
  Tree durable = {};
  std::vector<std::size_t> open = {};  // steps that are not durable

  // How many states there are, up to a limit.
  std::uint64_t states(const Trace& trace, std::uint64_t limit) const {
    std::uint64_t all = 1;
    for (const std::size_t at : open)
      if ((all *= static_cast<std::uint64_t>(fates_of(trace.steps[at]))) > limit) return limit + 1;
    return all;
  }
};

bool changes_names(const TraceStep& step) {
  return step.kind == Kind::kCreate || step.kind == Kind::kRename || step.kind == Kind::kLink ||
         step.kind == Kind::kUnlink;
}

bool is_made_durable(const TraceStep& step, const TraceStep& sync) {
  const bool moved = step.kind == Kind::kRename || step.kind == Kind::kLink;
  return changes_names(step) ? (moved ? step.to_directory : step.directory) == sync.file
                             : step.file == sync.file;
}

std::vector<Point> points_of(const Trace& trace) {
  std::vector<Point> points;
  Point now{.durable = trace.before};
  for (; now.end < trace.steps.size(); ++now.end) {
    const TraceStep& step = trace.steps[now.end];
    if (step.kind != Kind::kSync && step.kind != Kind::kReported) {
      now.open.push_back(now.end);
      continue;
    }
    points.push_back(now);
    now.reported = now.reported || step.kind == Kind::kReported;
    if (step.kind != Kind::kSync) continue;
    std::erase_if(now.open, [&](std::size_t at) {
      const bool durable = is_made_durable(trace.steps[at], step);
      if (durable) apply(now.durable, trace.steps[at]);
      return durable;
    });
  }
  points.push_back(std::move(now));
  return points;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return sim::Random(a + 0x9e3779b97f4a7c15ULL * b).next();
}

// The blocks of the write that reached the disk; the file is as long as all of it, or as the last of them.
void tear(Tree& tree, const TraceStep& step, std::uint64_t block, std::uint64_t tears) {
  TraceStep piece = step;
  for (std::uint64_t begin = 0, end = 0; begin < step.size; begin = end) {
    end = std::min(step.size, (step.offset + begin) / block * block + block - step.offset);
    if (mix(tears, begin / block) % 2 == 0) continue;
    piece.offset = step.offset + begin;
    piece.size = end - begin;
    piece.bytes = std::make_shared<const std::string>(step.bytes->substr(begin, end - begin));
    apply(tree, piece);
  }
  if (tears % 4 != 0)
    apply(tree, {.kind = Kind::kAllocate, .file = step.file, .size = step.offset + step.size});
}

void apply_fate(Tree& tree, const TraceStep& step, int fate, std::uint64_t tears) {
  if (fate == kLost) return;
  if (fate == kDone) return apply(tree, step);
  if (step.kind == Kind::kRename) {
    TraceStep both = step;
    both.kind = Kind::kLink;
    return apply(tree, both);
  }
  if (fate == kLengthAlone) {
    return apply(tree, {.kind = Kind::kAllocate, .file = step.file, .size = step.offset + step.size});
  }
  tear(tree, step, fate == kTornSectors ? kSector : kPage, tears);
}

class States {
 public:
  States(const Trace& trace, std::uint64_t most, std::uint64_t seed,
         const std::function<void(const CrashState&)>& look)
      : trace_(trace), most_(most), random_(seed), look_(look), points_(points_of(trace)) {}

  StateCounts run() {
    counts_.steps = trace_.steps.size();
    counts_.points = points_.size();
    for (const Point& point : points_)
      counts_.most_undurable = std::max(counts_.most_undurable, point.open.size());
    const std::uint64_t few = std::max<std::uint64_t>(most_ / points_.size(), 64);
    std::vector<const Point*> many;
    for (const Point& point : points_) {
      if (point.states(trace_, few) > few) {
        many.push_back(&point);
      } else if (exhaust(point)) {
        ++counts_.exhausted;
      }
    }
    for (int misses = 0; !many.empty() && counts_.states < most_ && misses < kMissesInARow;) {
      const Point& point = *many[random_() % many.size()];
      misses = try_state(point, random_fates(point), random_()) ? 0 : misses + 1;
    }
    return counts_;
  }

 private:
  // Whether all were looked at.
  bool exhaust(const Point& point) {
    std::vector<int> fates(point.open.size(), 0);
    for (;;) {
      if (counts_.states >= most_) return false;
      try_state(point, fates, random_());
      std::size_t i = 0;
      for (; i < fates.size(); fates[i++] = 0)
        if (++fates[i] < fates_of(trace_.steps[point.open[i]])) break;
      if (i == fates.size()) return true;
    }
  }

  // Anything at all; everything up to a moment and nothing after it; nearly all; only names or only data
  // lost.
  std::vector<int> random_fates(const Point& point) {
    const auto style = random_() % 5;
    const std::size_t cut = point.open.empty() ? 0 : random_() % (point.open.size() + 1);
    std::vector<int> fates;
    for (std::size_t i = 0; i < point.open.size(); ++i) {
      const TraceStep& step = trace_.steps[point.open[i]];
      const int any = static_cast<int>(random_() % static_cast<std::uint64_t>(fates_of(step)));
      int fate = any;
      if (style == 1) fate = i < cut ? (random_() % 4 == 0 ? any : kDone) : kLost;
      if (style == 2) fate = random_() % 4 == 0 ? any : kDone;
      if (style == 3) fate = changes_names(step) ? any : kDone;
      if (style == 4) fate = changes_names(step) ? kDone : any;
      fates.push_back(fate);
    }
    return fates;
  }

  bool try_state(const Point& point, const std::vector<int>& fates, std::uint64_t tears) {
    CrashState state{point.durable, point.reported, point.end, fates, tears};
    for (std::size_t i = 0; i < fates.size(); ++i)
      apply_fate(state.tree, trace_.steps[point.open[i]], fates[i], mix(tears, i));
    if (!seen_.insert(hash_of(state)).second) return false;
    ++counts_.states;
    look_(state);
    return true;
  }

  // Of names and bytes, and of what was promised about them.
  std::uint64_t hash_of(const CrashState& state) {
    std::string text = state.reported ? "reported" : "";
    append_names(text, state.tree, 0);
    return xxh3_64(as_bytes(text));
  }

  void append_names(std::string& text, const Tree& tree, FileId directory) {
    for (const auto& [name, file] : tree.directories.at(directory)) {
      text.append(name).push_back('\0');
      if (tree.directories.contains(file)) {
        text.push_back('/');
        append_names(text, tree, file);
        text.push_back('/');
      } else {
        const FileBytes& bytes = tree.files.at(file);
        text += fmt::format("{}:{:x};", bytes->size(), xxh3_64(as_bytes(*bytes)));
      }
    }
  }

  const Trace& trace_;
  const std::uint64_t most_;
  std::mt19937_64 random_;
  const std::function<void(const CrashState&)>& look_;
  const std::vector<Point> points_;
  std::unordered_set<std::uint64_t> seen_;
  StateCounts counts_;
};

}  // namespace

StateCounts for_each_crash_state(const Trace& trace, std::uint64_t most, std::uint64_t seed,
                                 const std::function<void(const CrashState&)>& look) {
  return States(trace, most, seed, look).run();
}

std::string story_of(const Trace& trace, const CrashState& state) {
  std::string text;
  const std::vector<Point> points = points_of(trace);
  const auto point =
      std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.end == state.point; });
  for (std::size_t i = 0, open = 0; i < state.point; ++i) {
    const TraceStep& step = trace.steps[i];
    const bool durable = open >= point->open.size() || point->open[open] != i;
    const int fate = durable ? kDone : state.fates[open++];
    const bool write = step.kind == Kind::kWrite;
    const char* const said = durable                ? ""
                             : fate == kLost        ? "LOST "
                             : fate == kDone        ? "(kept) "
                             : !write               ? "BOTH NAMES "
                             : fate == kLengthAlone ? "LENGTH ALONE "
                                                    : "TORN ";
    text += fmt::format("  {}{}\n", said, to_string(step));
  }
  return text;
}

}  // namespace cairn::trial
