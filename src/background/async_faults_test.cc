// Background saves that fail, are cancelled, or are still under way at the end.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "testing/async.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::size_t entries_of(const char* directory) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    count += entry.path().empty() ? 0 : 1;
  return count;
}

// A checkpoint of version 1 is there; what follows is slow.
class AsyncTrouble : public testing::Test {
 protected:
  void SetUp() override {
    SaveOptions save = place.save();
    cairn::save(large_state(8, 1), "memory", save);
    place.faults->clear();
  }
  void be_slow() const { place.delay(FileCall::kWrite, 5ms); }
  void expect_version(int version) const {
    const StateDict loaded = place.load();
    EXPECT_EQ(*loaded.find("version"), Value(version));
    EXPECT_EQ(*loaded.find("t7"), *large_state(8, version).find("t7"));
  }
  static void until_writing(const SaveHandle& handle) {
    while (handle.progress().written == 0) std::this_thread::sleep_for(1ms);
  }

  SlowPlace place;
};

TEST_F(AsyncTrouble, ACancelledSaveLeavesTheOldCheckpoint) {
  AsyncSaver saver({.save = place.save_paced()});
  const SaveHandle handle = saver.async_save(large_state(8, 2), "memory");
  until_writing(handle);
  handle.cancel();
  const Error e = error_of([&] { handle.wait(); });
  EXPECT_EQ(e.code(), ErrorCode::kCancelled) << e.what();
  EXPECT_EQ(name_of(handle.progress().phase), "failed");
  EXPECT_LT(handle.progress().written, 8U << 20);
  expect_version(1);
  saver.async_save(large_state(8, 3), "memory", place.save())
      .wait();  // a cancelled save is no failure that surfaces
  expect_version(3);
}

TEST_F(AsyncTrouble, ASaveInTheQueueCanBeCancelled) {
  GatedPlanner gate;
  AsyncSaver saver({.save = place.save_with(gate), .max_in_flight = 2});
  const SaveHandle first = saver.async_save(large_state(8, 2), "memory");
  const SaveHandle second = saver.async_save(large_state(8, 3), "memory");
  second.cancel();
  gate.open();
  first.wait();
  EXPECT_EQ(error_of([&] { second.wait(); }).code(), ErrorCode::kCancelled);
  expect_version(2);
}

TEST_F(AsyncTrouble, CancellingADoneSaveChangesNothing) {
  AsyncSaver saver({.save = place.save()});
  const SaveHandle handle = saver.async_save(large_state(8, 2), "memory");
  handle.wait();
  handle.cancel();
  EXPECT_NO_THROW(handle.wait());
  expect_version(2);
}

TEST_F(AsyncTrouble, OneRanksCancelIsEverybodys) {
  const TestFolder folder;
  run_ranks(3, [&](Group& group) {
    AsyncOptions options;
    options.save.group = &group;
    GatedPlanner gate;
    options.save.planner = &gate;
    AsyncSaver saver(options);
    StateDict state;
    for (const char* name : {"a", "b", "c", "d"})
      state.set(name + std::to_string(group.rank()), Value(numbered({1 << 18}, 1)));
    const SaveHandle handle = saver.async_save(state, folder / "run");
    if (group.rank() == 1) handle.cancel();
    gate.open();
    const Error e = error_of([&] { handle.wait(); });
    EXPECT_EQ(e.code(), ErrorCode::kCancelled) << e.what();
  });
  EXPECT_TRUE(posix_file_system(folder / "run")->list().empty());
}

// A rank's tensors, and options with which it takes most of a minute to write them.
StateDict slow_part(int rank) {
  StateDict state;
  for (int i = 0; i < 24; ++i)
    state.set("t" + std::to_string(rank) + "." + std::to_string(i), Value(numbered({1 << 18}, i)));
  return state;
}
SaveOptions slowly(Group& group) {
  SaveOptions options;
  options.group = &group;
  options.write = {.files_per_rank = 1, .bytes_per_second = 512U << 10};
  return options;
}

TEST_F(AsyncTrouble, OneRanksCancelStopsTheOthersInTheMiddle) {
  const TestFolder folder;
  const Clock::time_point start = Clock::now();
  for (const int canceller : {0, 2}) {
    run_ranks(3, [&](Group& group) {
      AsyncSaver saver({.save = slowly(group)});
      const SaveHandle handle = saver.async_save(slow_part(group.rank()), folder / "run");
      until_writing(handle);
      if (group.rank() == canceller) handle.cancel();
      const Error e = error_of([&] { handle.wait(); });
      EXPECT_EQ(e.code(), ErrorCode::kCancelled) << e.what();
      EXPECT_LT(handle.progress().written, 24U << 20);
    });
  }
  EXPECT_LT(Clock::now() - start, 40s);
  EXPECT_TRUE(posix_file_system(folder / "run")->list().empty());
}

// Cannot give the third item.
class BrokenPlanner : public DefaultSavePlanner {
 public:
  Value resolve_data(const WriteItem& item) override {
    if (++asked_ > 2) throw Error(ErrorCode::kInvalidArgument, "this tensor cannot be written");
    return DefaultSavePlanner::resolve_data(item);
  }

 private:
  int asked_ = 0;
};

TEST_F(AsyncTrouble, OneRanksFailureStopsTheOthersInTheMiddle) {
  const TestFolder folder;
  for (const int broken : {0, 1}) {
    run_ranks(3, [&](Group& group) {
      BrokenPlanner planner;
      SaveOptions options = slowly(group);
      if (group.rank() == broken) options.planner = &planner;
      std::uint64_t written = 0;
      options.progress = [&](const Progress& progress) { written = progress.done; };
      try {
        cairn::save(slow_part(group.rank()), folder / "run", options);
        ADD_FAILURE() << "saved what cannot be";
      } catch (const CheckpointError& e) {
        ASSERT_EQ(e.failures().size(), 1U) << e.what();
        EXPECT_EQ(e.failures().begin()->first, broken);
        EXPECT_EQ(e.failures().begin()->second.code(), ErrorCode::kInvalidArgument);
      }
      EXPECT_LT(written, 24U << 20);
    });
  }
}

TEST_F(AsyncTrouble, AFailureSurfacesAtWait) {
  AsyncSaver saver({.save = place.save()});
  place.fail(FileCall::kWrite, ENOSPC);
  const SaveHandle handle = saver.async_save(large_state(8, 2), "memory");
  const Error e = error_of([&] { handle.wait(); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_TRUE(mentions(e, "'memory' in the background")) << e.what();
  place.faults->clear();
  expect_version(1);
  saver.async_save(large_state(8, 3), "memory").wait();  // it was told once
  expect_version(3);
}

TEST_F(AsyncTrouble, AFailureNobodyWaitedForSurfacesAtTheNextSave) {
  AsyncSaver saver({.save = place.save()});
  place.fail(FileCall::kCommit, EIO);
  (void)saver.async_save(large_state(8, 2), "memory");
  const Error e = error_of([&] { saver.async_save(large_state(8, 3), "memory"); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  place.faults->clear();
  expect_version(1);
  saver.async_save(large_state(8, 4), "memory").wait();
  expect_version(4);
}

TEST_F(AsyncTrouble, AFailureSurfacesWhenAllIsWaitedFor) {
  AsyncSaver saver({.save = place.save()});
  place.fail(FileCall::kCommit, EIO);
  (void)saver.async_save(large_state(8, 2), "memory");
  EXPECT_EQ(error_of([&] { saver.wait(); }).code(), ErrorCode::kIo);
  EXPECT_NO_THROW(saver.wait());
}

TEST_F(AsyncTrouble, WhatOneRankCannotStageNobodySaves) {
  const TestFolder folder;
  run_ranks(3, [&](Group& group) {
    AsyncOptions options;
    options.save.group = &group;
    options.save.deadline = 20s;
    if (group.rank() == 1) options.staging.budget = 2U << 20;
    AsyncSaver saver(options);
    StateDict state;
    state.set("t" + std::to_string(group.rank()), Value(numbered({1 << 20}, 1)));
    const Error e = error_of([&] { saver.async_save(state, folder / "run").wait(); });
    EXPECT_EQ(e.code(), ErrorCode::kLimit) << e.what();
    StateDict small;
    small.set("t" + std::to_string(group.rank()), Value(numbered({10}, 1)));
    EXPECT_NO_THROW(saver.async_save(small, folder / "run").wait());
  });
  EXPECT_EQ(Value(Checkpoint::open(folder / "run")->read("t2")), Value(numbered({10}, 1)));
}

TEST_F(AsyncTrouble, WaitingHasADeadline) {
  GatedPlanner gate;
  AsyncSaver saver({.save = place.save_with(gate)});
  const SaveHandle handle = saver.async_save(large_state(8, 2), "memory");
  EXPECT_EQ(error_of([&] { handle.wait(Clock::now() + 1ms); }).code(), ErrorCode::kTimeout);
  EXPECT_EQ(error_of([&] { saver.wait(Clock::now() + 1ms); }).code(), ErrorCode::kTimeout);
  EXPECT_NO_THROW(handle.wait_staged(Clock::now() + 1s));
  gate.open();
  handle.wait(Clock::now() + 60s);
  expect_version(2);
}

TEST_F(AsyncTrouble, ADroppedHandleChangesNothing) {
  be_slow();
  AsyncSaver saver({.save = place.save()});
  (void)saver.async_save(large_state(8, 2), "memory");
  saver.wait();
  expect_version(2);
}

TEST_F(AsyncTrouble, TwoSaversOfOneIdConflict) {
  const auto other_writer = dcp_writer(place.files, {.files_per_rank = 1});
  GatedPlanner gate;
  AsyncSaver one({.save = place.save_with(gate)});
  AsyncSaver other({.save = {.writer = other_writer.get()}});
  const SaveHandle first = one.async_save(large_state(8, 2), "memory");
  until_writing(first);
  const SaveHandle second = other.async_save(large_state(8, 3), "memory");
  EXPECT_EQ(error_of([&] { second.wait(); }).code(), ErrorCode::kConflict);
  gate.open();
  first.wait();
  expect_version(2);
}

TEST_F(AsyncTrouble, TheEndWaitsForWhatIsQueued) {
  be_slow();
  {
    AsyncSaver saver({.save = place.save(), .max_in_flight = 3});
    for (const int version : {2, 3, 4}) (void)saver.async_save(large_state(8, version), "memory");
  }
  expect_version(4);
}

TEST_F(AsyncTrouble, TheEndCanCancelWhatIsQueued) {
  std::vector<SaveHandle> handles;
  {
    AsyncSaver saver({.save = place.save_paced(), .max_in_flight = 2, .at_exit = AtExit::kCancel});
    for (const int version : {2, 3}) handles.push_back(saver.async_save(large_state(8, version), "memory"));
    until_writing(handles.front());
  }
  for (const SaveHandle& handle : handles)
    EXPECT_EQ(error_of([&] { handle.wait(); }).code(), ErrorCode::kCancelled);
  expect_version(1);
}

TEST_F(AsyncTrouble, TheEndsPatienceEnds) {
  {
    AsyncSaver saver({.save = place.save_paced(), .exit_patience = 1ms});
    (void)saver.async_save(large_state(8, 2), "memory");
  }
  expect_version(1);
}

// The system forgets a thread a moment after it was joined.
std::size_t threads_now(std::size_t expected) {
  for (int i = 0; i < 1000 && entries_of("/proc/self/task") > expected; ++i) std::this_thread::sleep_for(1ms);
  return entries_of("/proc/self/task");
}

TEST_F(AsyncTrouble, NothingIsLeaked) {
  const TestFolder folder;
  const auto round = [&](int i) {
    AsyncOptions options;
    options.mode = i % 2 == 0 ? StagingMode::kBlocking : StagingMode::kOverlapped;
    options.staging.threads = 3;
    options.at_exit = i % 3 == 0 ? AtExit::kCancel : AtExit::kWait;
    options.save.write.durable = false;
    if (i % 4 == 1) options.save.writer = place.writer.get();
    AsyncSaver saver(options);
    const StateDict state = large_state(12, i);
    const SaveHandle handle = saver.async_save(state, folder / "run");
    if (i % 5 == 0) handle.cancel();
    handle.wait_staged();
  };
  round(1);
  const std::size_t threads = entries_of("/proc/self/task");
  const std::size_t files = entries_of("/proc/self/fd");
  place.fail(FileCall::kCommit, EIO);
  for (int i = 0; i < 20; ++i) round(i);
  EXPECT_EQ(threads_now(threads), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
}

}  // namespace
}  // namespace cairn
