// A background save stays out of the way: its threads' priorities, its pace.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "testing/async.h"
#include "testing/folder.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kIoOfOneThread = 1;
constexpr int kIoIdle = 3 << 13;

struct Priority {
  int nice = 0;
  int io = 0;
};

// Of every thread of this process that is not in `known`.
std::map<pid_t, Priority> threads_beside(const std::map<pid_t, Priority>& known) {
  std::map<pid_t, Priority> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto id = static_cast<pid_t>(std::stoi(entry.path().filename()));
    if (known.contains(id)) continue;
    threads[id] = {::getpriority(PRIO_PROCESS, static_cast<id_t>(id)),
                   static_cast<int>(::syscall(SYS_ioprio_get, kIoOfOneThread, id))};
  }
  return threads;
}

TEST(AsyncPriority, HoldsForEveryThreadOfASave) {
  const TestFolder folder;
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first one
  const std::map<pid_t, Priority> before = threads_beside({});
  GatedPlanner gate;
  AsyncOptions options;
  options.nice = 15;
  options.io_priority = IoPriority::kIdle;
  options.save.planner = &gate;
  options.save.write.files_per_rank = 2;
  AsyncSaver saver(options);
  const SaveHandle handle = saver.async_save(large_state(8, 1), folder / "run");
  // The worker, which writes a file itself, a thread for the other one, and one behind each.
  std::map<pid_t, Priority> writing;
  for (const auto until = Clock::now() + 30s; writing.size() < 4 && Clock::now() < until;)
    writing = threads_beside(before);
  gate.open();
  handle.wait();
  EXPECT_GE(writing.size(), 4U);
  for (const auto& [id, priority] : writing) {
    EXPECT_EQ(priority.nice, 15) << "thread " << id;
    EXPECT_EQ(priority.io, kIoIdle) << "thread " << id;
  }
  EXPECT_LT(::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))), 15);
}

TEST(AsyncPriority, ThePaceHoldsForAWholeSave) {
  const TestFolder folder;
  AsyncOptions options;
  options.save.write.files_per_rank = 2;
  options.save.write.bytes_per_second = 16U << 20;
  AsyncSaver saver(options);
  const StateDict state = large_state(16, 1);
  const Clock::time_point start = Clock::now();
  const SaveHandle handle = saver.async_save(state, folder / "run");
  const Clock::time_point returned = Clock::now();
  handle.wait();
  // The last of 16 MiB begins after 15/16 of a second; the caller does not wait for that.
  EXPECT_GE(Clock::now() - start, 900ms);
  EXPECT_LT(returned - start, Clock::now() - returned);
}

}  // namespace
}  // namespace cairn
