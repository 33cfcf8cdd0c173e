#include "sim_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "virtual_threads.h"

namespace cairn::sim {
namespace {

constexpr std::size_t kTail = 120;
constexpr std::uint64_t kMostTurns = 20'000'000;  // more is a seed that never ends

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
  return hash ^ (hash >> 32);
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  return mix(hash, std::hash<std::string_view>()(text));
}

// Letters are bytes: only a line's worth, and only what a terminal can show.
std::string shown(std::string_view text) {
  std::string line(text.substr(0, 200));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '.');
  return line;
}

}  // namespace

bool Process::is_on_main_fiber() const { return world_.fibers.current() == main_fiber; }

Time Process::local_now() const { return world_.fibers.now() + clock_ahead; }

void Process::stall(Time time) {
  stalled_ += time;
  world_.fibers.sleep_until(world_.fibers.now() + time);
}

bool Process::enter(std::string_view what, std::string_view name, std::uint64_t a, std::uint64_t b) {
  if (dead_) return false;
  world_.note(this, what, name, a, b);
  ++calls_;
  if (calls_ == troubles_.jump_at_call) {
    world_.note(this, "clock jumps", "", static_cast<std::uint64_t>(troubles_.jump.count()));
    clock_ahead += troubles_.jump;
  }
  if (calls_ == troubles_.hang_at_call) {
    world_.note(this, "hangs", "", static_cast<std::uint64_t>(troubles_.hang.count()));
    hung_ = true;
    frozen_until = world_.fibers.now() + troubles_.hang;
    stall(troubles_.hang);
    world_.note(this, "wakes", "");
  }
  if (calls_ == troubles_.crash_at_call && !troubles_.crash_after) die();
  return !dead_;
}

bool Process::leave() {
  if (!dead_ && calls_ == troubles_.crash_at_call && troubles_.crash_after) die();
  return !dead_;
}

void Process::die() {
  if (std::exchange(dead_, true)) return;
  world_.note(this, "dies", "");
  for (const auto& action : at_death) action();
}

World::World(std::uint64_t seed, bool traced)
    : fibers(Random(seed).next()), random(seed), library_random_(random.fork()), traced_(traced) {
  draw_from(&library_random_);
}

World::~World() { draw_from(nullptr); }

Process& World::add_process(const Troubles& troubles) {
  Process& process = processes_.emplace_back(*this, static_cast<int>(processes_.size()), troubles);
  if (troubles.crash_at != kNever) fibers.start([&process] { process.die(); }, nullptr, troubles.crash_at);
  return process;
}

void World::note(const Process* process, std::string_view what, std::string_view name, std::uint64_t a,
                 std::uint64_t b) {
  const int id = process == nullptr ? -1 : process->id();
  hash_ = mix(hash_, static_cast<std::uint64_t>(fibers.now().count()));
  hash_ = mix(mix(hash_, what), static_cast<std::uint64_t>(id));
  hash_ = mix(mix(mix(hash_, name), a), b);
  if (!traced_) return;
  tail_.push_back(fmt::format("{:12.3f} ms  process {:2}  {} {} {} {}",
                              static_cast<double>(fibers.now().count()) / 1e6, id, what, shown(name), a, b));
  if (tail_.size() > kTail) tail_.pop_front();
}

void World::break_promise(std::string text) {
  note(nullptr, "BROKEN", text);
  if (!broken_) broken_ = std::move(text);
}

void World::run(const std::function<void()>& after_each_turn) {
  struct Over {};
  int left = 0;
  try {
    left = fibers.run(kMostTurns, [&] {
      after_each_turn();
      if (broken_) throw Over();
    });
  } catch (const Over&) {
    return;
  }
  if (left > 0) break_promise(fmt::format("{} fibers never end", left));
}

}  // namespace cairn::sim
