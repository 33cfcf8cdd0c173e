// One seed's world: its time, its processes, what happens to them, and what has happened.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fibers.h"
#include "random.h"

namespace cairn::sim {

// Thrown in a process that is dead, so that its fibers end and its memory is given back. No cairn::Error:
// nobody may take it for a failure that can be told to others. Whatever it still tries has no effect.
struct Crashed {};

// What goes wrong in a process, counted in its calls to the network and to storage.
struct Troubles {
  int crash_at_call = 0;     // 0: never
  bool crash_after = false;  // when the call has done its work
  Time crash_at = kNever;
  int hang_at_call = 0;
  Time hang{0};
  int jump_at_call = 0;
  Time jump{0};  // of its clock
};

// A save that a process is at, for whoever watches what it does.
struct Attempt {
  int version = 0;  // of the state: no two attempts of a world have the same
  bool is_coordinator = false;
  Time deadline{0};       // by the process's own clock
  bool may_write = true;  // false: the ranks disagree, and must find out before
};

class World;

class Process : public Clocked {
 public:
  Process(World& world, int id, const Troubles& troubles) : world_(world), id_(id), troubles_(troubles) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int id() const { return id_; }
  World& world() { return world_; }
  bool is_dead() const { return dead_; }
  bool is_on_main_fiber() const;
  // How long it was held up by what a deadline cannot end.
  Time stalled() const { return stalled_; }
  void stall(Time time);
  bool was_hung() const { return hung_; }
  bool has_jumped() const { return clock_ahead > Time(0); }
  Time local_now() const;

  // Around each of its calls. False: the process is dead.
  bool enter(std::string_view what, std::string_view name, std::uint64_t a = 0, std::uint64_t b = 0);
  bool leave();
  void die();

  std::vector<std::function<void()>> at_death;
  Fiber* main_fiber = nullptr;
  Attempt attempt;

 private:
  World& world_;
  const int id_;
  const Troubles troubles_;
  bool dead_ = false;
  bool hung_ = false;
  int calls_ = 0;
  Time stalled_{0};
};

class World {
 public:
  World(std::uint64_t seed, bool traced);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  Fibers fibers;
  Random random;

  Process& add_process(const Troubles& troubles);
  const std::deque<Process>& processes() const { return processes_; }

  // Adds to the trace. `process` may be null: the world itself.
  void note(const Process* process, std::string_view what, std::string_view name, std::uint64_t a = 0,
            std::uint64_t b = 0);
  std::uint64_t trace_hash() const { return hash_; }
  const std::deque<std::string>& tail() const { return tail_; }

  // Ends the simulation: a promise does not hold.
  void break_promise(std::string text);
  const std::optional<std::string>& broken() const { return broken_; }

  // Lets everything happen until nothing more can.
  void run(const std::function<void()>& after_each_turn);

 private:
  std::deque<Process> processes_;
  Random library_random_;
  bool traced_;
  std::uint64_t hash_ = 0x2545f4914f6cdd1dULL;
  std::deque<std::string> tail_;
  std::optional<std::string> broken_;
};

}  // namespace cairn::sim
