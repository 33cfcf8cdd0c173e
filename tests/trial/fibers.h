// Many threads of control on one thread, on a clock of their own: what a seed does once it does every time.
//
// A fiber runs until it waits. Then the one whose turn comes next in virtual time runs; among those whose
// turn it is at the same time the seed chooses. Time passes only while everybody waits, so a deadline of
// half an hour costs nothing.
//
//   Fibers fibers(seed);
//   fibers.start([&] { fibers.sleep_until(fibers.now() + 5ms); }, nullptr);
//   fibers.run();
#pragma once

#include <ucontext.h>

#include <array>
#include <chrono>
#include <csetjmp>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "random.h"

namespace cairn::sim {

using Time = std::chrono::nanoseconds;  // since the simulation began
inline constexpr Time kNever = Time::max();

// Whose fibers stop and go on together, as the threads of a process do, and whose clock they see.
struct Clocked {
  Time frozen_until{0};
  Time clock_ahead{0};  // of everybody else's
};

class Stack;

// Made by Fibers alone. Others hold pointers to it, to wake it.
struct Fiber {
  std::function<void()> body;
  Clocked* owner = nullptr;
  std::unique_ptr<Stack> stack;
  jmp_buf place;
  void* fake_stack = nullptr;         // AddressSanitizer's
  std::array<void*, 2> exceptions{};  // those being handled: C++ keeps them per thread
  std::uint64_t turn = 0;             // counts resumptions: an appointment of an earlier one is void
  bool started = false;
  bool done = false;
  Fiber* joining = nullptr;  // who waits for its end
  Fiber* next_waiting = nullptr;
};

class Fibers {
 public:
  explicit Fibers(std::uint64_t seed);
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers();

  static Fibers* active();  // the one that runs now, on this thread; null outside of run()

  Fiber* start(std::function<void()> body, Clocked* owner, Time at = Time(0));
  // Until nobody is left who will ever go on. Returns how many wait for ever.
  int run(std::uint64_t most_turns, const std::function<void()>& after_each_turn);

  Time now() const { return now_; }
  Time local_now() const;  // as the running fiber's owner sees it
  Fiber* current() const { return current_; }
  bool is_inside() const { return current_ != &outside_; }
  std::uint64_t turns() const { return turns_; }

  // For the running fiber.
  void sleep_until(Time time);
  void park(Time until);  // until it is woken, or until then; it may be woken for nothing
  void join(Fiber* other);

  void wake(Fiber* fiber, Time at);

 private:
  struct Appointment {
    Time time;
    std::uint64_t lot;  // drawn, for those at the same time
    Fiber* fiber;
    std::uint64_t turn;
    bool operator>(const Appointment& other) const {
      return time != other.time ? time > other.time : lot > other.lot;
    }
  };

  static void enter();
  void resume(Fiber* fiber);
  void switch_away();

  Random random_;
  Time now_{0};
  Fiber outside_;
  Fiber* current_ = &outside_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::priority_queue<Appointment, std::vector<Appointment>, std::greater<>> appointments_;
  int alive_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace cairn::sim
