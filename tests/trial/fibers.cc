// A jump from one stack to another is what longjmp's own check takes for a mistake.
#undef _FORTIFY_SOURCE
#include "fibers.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cairn::sim {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr std::size_t kGuardBytes = std::size_t{4} << 10;
// A guard is a mapping of its own, and a process may have 65,530 of them.
constexpr std::size_t kMostGuards = 8192;

Fibers* running = nullptr;

// AddressSanitizer wants to know which stack is in use.
#ifdef __SANITIZE_ADDRESS__
struct {
  const void* base;
  std::size_t bytes;
} outer_stack;

void leave_for_fiber(void*& fake_stack, void* base) {
  __sanitizer_start_switch_fiber(&fake_stack, base, kStackBytes);
}
void arrive_outside(void* fake_stack) { __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr); }
void leave_for_outside(void** fake_stack) {
  __sanitizer_start_switch_fiber(fake_stack, outer_stack.base, outer_stack.bytes);
}
void arrive_in_fiber(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, &outer_stack.base, &outer_stack.bytes);
}
void forget_frames(void* base) { __asan_unpoison_memory_region(base, kStackBytes); }
#else
void leave_for_fiber(void*&, void*) {}
void arrive_outside(void*) {}
void leave_for_outside(void**) {}
void arrive_in_fiber(void*) {}
void forget_frames(void*) {}
#endif

}  // namespace

// Memory for one fiber. Its lowest page is never there: a fiber that needs more dies at once.
class Stack {
 public:
  Stack() {
    void* const at = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    if (made_++ < kMostGuards) ::mprotect(at, kGuardBytes, PROT_NONE);
    base_ = at;
    forget_frames(base_);  // of a stack that lay there before
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { ::munmap(base_, kStackBytes); }

  void* base() const { return base_; }

  // Stacks go from fiber to fiber: a new one costs a system call and page faults.
  static std::unique_ptr<Stack> take() {
    if (free_.empty()) return std::make_unique<Stack>();
    std::unique_ptr<Stack> stack = std::move(free_.back());
    free_.pop_back();
    return stack;
  }
  static void give_back(std::unique_ptr<Stack> stack) { free_.push_back(std::move(stack)); }

 private:
  void* base_;
  static inline std::size_t made_ = 0;
  static inline std::vector<std::unique_ptr<Stack>> free_;
};

Fibers::Fibers(std::uint64_t seed) : random_(seed) { running = this; }
Fibers::~Fibers() { running = nullptr; }
Fibers* Fibers::active() { return running; }

Time Fibers::local_now() const {
  return now_ + (current_->owner == nullptr ? Time(0) : current_->owner->clock_ahead);
}

Fiber* Fibers::start(std::function<void()> body, Clocked* owner, Time at) {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber* const fiber = fibers_.back().get();
  fiber->body = std::move(body);
  fiber->owner = owner;
  ++alive_;
  wake(fiber, std::max(at, now_));
  return fiber;
}

void Fibers::wake(Fiber* fiber, Time at) {
  if (at != kNever) appointments_.push({std::max(at, now_), random_.next(), fiber, fiber->turn});
}

int Fibers::run(std::uint64_t most_turns, const std::function<void()>& after_each_turn) {
  for (; !appointments_.empty() && turns_ < most_turns;) {
    Appointment next = appointments_.top();
    appointments_.pop();
    if (next.fiber->done || next.fiber->turn != next.turn) continue;
    now_ = next.time;
    if (next.fiber->owner != nullptr && next.fiber->owner->frozen_until > now_) {
      next.time = next.fiber->owner->frozen_until;
      appointments_.push(next);
      continue;
    }
    ++turns_;
    resume(next.fiber);
    after_each_turn();
  }
  return alive_;
}

void Fibers::resume(Fiber* fiber) {
  ++fiber->turn;
  current_ = fiber;
  std::array<void*, 2>* const globals = reinterpret_cast<std::array<void*, 2>*>(abi::__cxa_get_globals());
  outside_.exceptions = std::exchange(*globals, fiber->exceptions);
  if (!fiber->started) fiber->stack = Stack::take();
  if (_setjmp(outside_.place) == 0) {
    leave_for_fiber(outside_.fake_stack, fiber->stack->base());
    if (fiber->started) _longjmp(fiber->place, 1);
    fiber->started = true;
    ucontext_t begin;
    ::getcontext(&begin);
    begin.uc_stack.ss_sp = fiber->stack->base();
    begin.uc_stack.ss_size = kStackBytes;
    begin.uc_link = nullptr;
    ::makecontext(&begin, &Fibers::enter, 0);
    ::setcontext(&begin);
  }
  arrive_outside(outside_.fake_stack);
  fiber->exceptions = std::exchange(*globals, outside_.exceptions);
  current_ = &outside_;
  if (!fiber->done) return;
  Stack::give_back(std::move(fiber->stack));
  --alive_;
}

void Fibers::enter() {
  arrive_in_fiber(nullptr);
  Fiber* const self = running->current_;
  self->body();
  self->body = nullptr;
  self->done = true;
  if (self->joining != nullptr) running->wake(self->joining, running->now_);
  leave_for_outside(nullptr);
  _longjmp(running->outside_.place, 1);
}

void Fibers::switch_away() {
  if (_setjmp(current_->place) == 0) {
    leave_for_outside(&current_->fake_stack);
    _longjmp(outside_.place, 1);
  }
  arrive_in_fiber(current_->fake_stack);
}

void Fibers::park(Time until) {
  wake(current_, until);
  switch_away();
}

void Fibers::sleep_until(Time time) {
  do park(time);
  while (now_ < time);
}

void Fibers::join(Fiber* other) {
  other->joining = current_;
  while (!other->done) park(kNever);
}

}  // namespace cairn::sim
