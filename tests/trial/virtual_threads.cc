// The library's threads, locks, sleeps, clock and random numbers, as the simulation has them.
//
// A program's own definition of a function of libc or libstdc++ comes before theirs, for the program and for
// the shared libraries it loads. So the library runs here as it is, threads and all: each thread is a fiber,
// each wait is virtual, and nothing is left that two runs of one seed could do differently.
#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fibers.h"
#include "virtual_threads.h"

namespace cairn::sim {
namespace {

Random* numbers = nullptr;

// A clock that begins at zero has times before it that overflow nothing and look odd in a message.
constexpr std::chrono::hours kBoot(1000);

Time time_of(const timespec& t) { return std::chrono::seconds(t.tv_sec) + Time(t.tv_nsec); }

// In the memory of a pthread_mutex_t. An unused one is zeros, but for its kind.
struct Mutex {
  Fiber* owner;
  std::uint32_t count;
  std::uint32_t unused;
  int kind;  // where libc has it
  int unused_too;
  Fiber* waiting;
};
static_assert(sizeof(Mutex) <= sizeof(pthread_mutex_t));
static_assert(offsetof(Mutex, kind) == offsetof(pthread_mutex_t, __data.__kind));

// The same for a pthread_cond_t.
struct Condition {
  Fiber* waiting;
};
static_assert(sizeof(Condition) <= sizeof(pthread_cond_t));

Mutex& of(pthread_mutex_t* mutex) { return *reinterpret_cast<Mutex*>(mutex); }
Condition& of(pthread_cond_t* condition) { return *reinterpret_cast<Condition*>(condition); }

void append(Fiber*& list, Fiber* fiber) {
  Fiber** end = &list;
  while (*end != nullptr) end = &(*end)->next_waiting;
  *end = fiber;
  fiber->next_waiting = nullptr;
}

// Whether it was there.
bool remove(Fiber*& list, const Fiber* fiber) {
  for (Fiber** at = &list; *at != nullptr; at = &(*at)->next_waiting) {
    if (*at != fiber) continue;
    *at = fiber->next_waiting;
    return true;
  }
  return false;
}

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "simulate: %s\n", why);
  std::abort();
}

void lock(Mutex& mutex) {
  Fibers* const fibers = Fibers::active();
  if (fibers == nullptr) return;  // one thread, nobody to keep out
  Fiber* const self = fibers->current();
  if (mutex.owner == nullptr || (mutex.owner == self && mutex.kind != PTHREAD_MUTEX_NORMAL)) {
    mutex.owner = self;
    ++mutex.count;
    return;
  }
  if (!fibers->is_inside()) give_up("a lock is held by a fiber while the simulation looks at its work");
  append(mutex.waiting, self);
  while (mutex.owner != self) fibers->park(kNever);
}

void unlock(Mutex& mutex) {
  Fibers* const fibers = Fibers::active();
  if (fibers == nullptr || mutex.count == 0 || --mutex.count > 0) return;
  mutex.owner = mutex.waiting;
  if (mutex.owner == nullptr) return;
  mutex.waiting = mutex.owner->next_waiting;
  mutex.count = 1;
  fibers->wake(mutex.owner, fibers->now());
}

// 0 or ETIMEDOUT.
int wait(Condition& condition, Mutex& mutex, Time until) {
  Fibers* const fibers = Fibers::active();
  if (fibers == nullptr || !fibers->is_inside()) give_up("somebody waits outside of the simulation");
  Fiber* const self = fibers->current();
  append(condition.waiting, self);
  unlock(mutex);
  fibers->park(until);
  const bool late = remove(condition.waiting, self);
  lock(mutex);
  return late ? ETIMEDOUT : 0;
}

void notify(Condition& condition) {
  Fiber* const fiber = condition.waiting;
  condition.waiting = fiber->next_waiting;
  Fibers::active()->wake(fiber, Fibers::active()->now());
}

// From a time of the clock below, as the running fiber sees it.
Time virtual_time(const timespec& t) {
  const Fibers& fibers = *Fibers::active();
  return time_of(t) - kBoot - (fibers.local_now() - fibers.now());
}

}  // namespace

void draw_from(Random* random) { numbers = random; }

std::uint64_t draw() {
  if (numbers == nullptr) give_up("random numbers are wanted outside of a seed");
  return numbers->next();
}

}  // namespace cairn::sim

using namespace cairn::sim;

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  const Fibers* const fibers = Fibers::active();
  return time_point(kBoot + (fibers == nullptr ? Time(0) : fibers->local_now()));
}

extern "C" {

ssize_t getrandom(void* to, size_t size, unsigned /*flags*/) {
  static Random keys(1);  // of hashes: drawn once, before the first seed
  for (size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t number = Fibers::active() == nullptr ? keys.next() : draw();
    std::memcpy(static_cast<char*>(to) + at, &number, std::min(sizeof number, size - at));
  }
  return static_cast<ssize_t>(size);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* /*attributes*/, void* (*body)(void*),
                   void* with) {
  Fibers* const fibers = Fibers::active();
  if (fibers == nullptr || !fibers->is_inside()) give_up("a thread is started outside of the simulation");
  Fiber* const fiber = fibers->start([=] { body(with); }, fibers->current()->owner);
  *thread = reinterpret_cast<pthread_t>(fiber);
  return 0;
}

int pthread_join(pthread_t thread, void** /*result*/) {
  Fibers::active()->join(reinterpret_cast<Fiber*>(thread));
  return 0;
}

int pthread_detach(pthread_t /*thread*/) noexcept { return 0; }

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  lock(of(mutex));
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (Fibers::active() != nullptr && of(mutex).owner != nullptr) return EBUSY;
  lock(of(mutex));
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  unlock(of(mutex));
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait(of(condition), of(mutex), kNever);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t /*clock*/,
                           const timespec* until) {
  return wait(of(condition), of(mutex), virtual_time(*until));
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  return wait(of(condition), of(mutex), virtual_time(*until));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (of(condition).waiting != nullptr) notify(of(condition));
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  while (of(condition).waiting != nullptr) notify(of(condition));
  return 0;
}

int pthread_cond_destroy(pthread_cond_t* /*condition*/) noexcept { return 0; }

int nanosleep(const timespec* time, timespec* /*left*/) {
  Fibers* const fibers = Fibers::active();
  if (fibers == nullptr || !fibers->is_inside()) give_up("somebody sleeps outside of the simulation");
  fibers->sleep_until(fibers->now() + time_of(*time));
  return 0;
}

}  // extern "C"
