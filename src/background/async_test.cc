// What a background save writes is what the state held at the call.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include "testing/async.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(AsyncSave, AThousandSnapshotsAreWhatTheStateWasAtTheCall) {
  constexpr unsigned kSeed = 20261115;
  ChangingState training(kSeed);
  std::array<SlowPlace, 2> places;
  std::array<DefaultSavePlanner, 2> planners = {DefaultSavePlanner({.enable_plan_caching = true}),
                                                DefaultSavePlanner({.enable_plan_caching = true})};
  for (const SlowPlace& place : places) place.delay(FileCall::kCreate, 100us);
  AsyncSaver saver;
  for (std::size_t i = 0; i < 1000; ++i) {
    SaveOptions save = places[i % 2].save();
    save.planner = &planners[i % 2];
    const auto content = training.content();
    const SaveHandle handle = saver.async_save(training.state(), i % 2 == 0 ? "even" : "odd", save);
    training.change();
    handle.wait();
    expect_content(places[i % 2].load(), content);
    if (HasFatalFailure()) FAIL() << "save " << i << ", seed " << kSeed;
  }
}

std::size_t data_files_in(const std::string& path) {
  std::set<std::string> files;
  for (const FileEntry& entry : posix_file_system(path)->list())
    if (entry.name.ends_with(".distcp")) files.insert(entry.name);
  return files.size();
}

TEST(AsyncSave, ACoreIsLeftToTheTrainingLoop) {
  const TestFolder folder;
  StateDict state;
  for (int i = 0; i < 4; ++i) state.set(fmt::format("t{}", i), Value(numbered({4 << 20}, i)));
  const auto cores = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  save(state, folder / "now");
  AsyncSaver().async_save(state, folder / "later").wait();
  EXPECT_EQ(data_files_in(folder / "now"), std::min<std::size_t>(cores, 4));
  EXPECT_EQ(data_files_in(folder / "later"), std::clamp<std::size_t>(cores - 1, 1, 4));
}

TEST(AsyncSave, OverlappedSnapshotsAreGuarded) {
  const SlowPlace place;
  AsyncSaver saver({.save = place.save(), .mode = StagingMode::kOverlapped, .staging = {.threads = 3}});
  Tensor tensor = numbered({5 << 20}, 0);
  StateDict state;
  for (int i = 0; i < 6; ++i) {
    state.set("t", Value(tensor));
    const Tensor expected = clone(tensor);
    const SaveHandle handle = saver.async_save(state, "memory");
    {
      const StepGuard guard = i % 2 == 0 ? handle.guard() : saver.guard();
      EXPECT_TRUE(handle.staging_done());
      for (std::byte& byte : tensor.bytes()) byte ^= static_cast<std::byte>(i + 1);
    }
    handle.wait_staged();
    handle.wait();
    EXPECT_EQ(*place.load().find("t"), Value(expected)) << i;
  }
}

TEST(AsyncSave, ManyRanksSaveInTheBackground) {
  constexpr int kRanks = 4;
  const TestFolder folder;
  run_ranks(kRanks, [&](Group& group) {
    DefaultSavePlanner planner({.enable_plan_caching = true});
    AsyncOptions options;
    options.save.group = &group;
    options.save.planner = &planner;
    options.save.write.durable = false;
    AsyncSaver saver(options);
    for (int version = 1; version <= 25; ++version) {
      const StateDict state = trainer_state(group.rank(), kRanks, version);
      const std::string path = folder / (version % 2 == 0 ? "even" : "odd");
      const SaveHandle handle = saver.async_save(state, path);
      Tensor mine = state.find("model")->get<Dict>().find("w")->get<ShardedTensor>().shards[0].data;
      for (std::byte& byte : mine.bytes()) byte = std::byte{0x77};
      const SaveResult result = handle.wait();
      EXPECT_EQ(result.metadata != nullptr, group.rank() == 0);
      if (group.rank() != 0) continue;
      const auto checkpoint = Checkpoint::open(path);
      EXPECT_EQ(Value(checkpoint->read("model.w")), Value(numbered({37, 24}, version)));
      EXPECT_EQ(checkpoint->object("step"), Value(version));
    }
  });
}

class Counter : public Stateful {
 public:
  StateDict state_dict() override {
    asked_by = std::this_thread::get_id();
    StateDict state;
    state.set("count", Value(count));
    return state;
  }
  void load_state_dict(const StateDict&) override {}
  int count = 1;
  std::thread::id asked_by;
};

TEST(AsyncSave, StatefulPartsAreAskedInTheCallersThread) {
  const SlowPlace place;
  AsyncSaver saver({.save = place.save()});
  Counter counter;
  AppState app;
  app.add("part", counter);
  const SaveHandle handle = saver.async_save(app, "memory");
  counter.count = 2;
  handle.wait();
  EXPECT_EQ(counter.asked_by, std::this_thread::get_id());
  EXPECT_EQ(*place.load().find("part")->get<Dict>().find("count"), Value(1));
}

TEST(AsyncSave, SavesWaitForTheOnesBeforeThem) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver({.save = place.save_with(gate)});
  const SaveHandle first = saver.async_save(large_state(8, 1), "memory");
  EXPECT_FALSE(first.done());
  const std::jthread later = gate.open_later();
  const SaveHandle second = saver.async_save(large_state(8, 2), "memory");
  EXPECT_TRUE(first.done());
  second.wait();
  EXPECT_EQ(*place.load().find("version"), Value(2));
}

TEST(AsyncSave, ASecondSaveOfAnIdIsWrittenAfterTheFirst) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver({.save = place.save_with(gate), .max_in_flight = 2});
  const SaveHandle first = saver.async_save(large_state(4, 1), "memory");
  const SaveHandle second = saver.async_save(large_state(4, 2), "memory");
  EXPECT_FALSE(first.done());
  gate.open();
  EXPECT_NE(first.wait().save_id, second.wait().save_id);
  EXPECT_EQ(*place.load().find("version"), Value(2));
}

TEST(AsyncSave, TooManySavesCanBeAnError) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver({.save = place.save_with(gate), .on_busy = OnBusy::kError});
  const SaveHandle first = saver.async_save(large_state(8, 1), "memory");
  EXPECT_EQ(error_of([&] { saver.async_save(large_state(1, 2), "memory"); }).code(), ErrorCode::kConflict);
  gate.open();
  first.wait();
  saver.async_save(large_state(1, 3), "memory").wait();
  EXPECT_EQ(*place.load().find("version"), Value(3));
}

TEST(AsyncSave, ACallThatWaitsTooLongIsATimeout) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver({.save = place.save_with(gate), .patience = 10ms});
  const SaveHandle first = saver.async_save(large_state(8, 1), "memory");
  EXPECT_EQ(error_of([&] { saver.async_save(large_state(1, 2), "memory"); }).code(), ErrorCode::kTimeout);
  gate.open();
  first.wait();
}

// Snapshots of 4 MiB and a little.
AsyncOptions with_budget(const SaveOptions& save, std::uint64_t mib, OnFull on_full) {
  AsyncOptions options;
  options.save = save;
  options.staging.budget = mib << 20;
  options.on_full = on_full;
  options.max_in_flight = 3;
  return options;
}

TEST(AsyncSave, AFullBudgetIsWaitedFor) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver(with_budget(place.save_with(gate), 6, OnFull::kWait));
  const SaveHandle first = saver.async_save(large_state(4, 1), "memory");
  const std::jthread later = gate.open_later();
  const SaveHandle second = saver.async_save(large_state(4, 2), "memory");
  EXPECT_EQ(first.progress().written, first.progress().to_write);  // or there would be no memory
  second.wait();
  EXPECT_EQ(error_of([&] { saver.async_save(large_state(8, 3), "memory"); }).code(), ErrorCode::kLimit);
  EXPECT_EQ(*place.load().find("version"), Value(2));
}

TEST(AsyncSave, AFullBudgetCanBeAnError) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver(with_budget(place.save_with(gate), 6, OnFull::kError));
  const SaveHandle first = saver.async_save(large_state(4, 1), "memory");
  EXPECT_EQ(error_of([&] { saver.async_save(large_state(4, 2), "memory"); }).code(), ErrorCode::kLimit);
  gate.open();
  first.wait();
}

TEST(AsyncSave, AFullBudgetCanBeWrittenThrough) {
  const SlowPlace place;
  GatedPlanner gate;
  AsyncSaver saver(with_budget(place.save_with(gate), 6, OnFull::kWriteThrough));
  const SaveHandle first = saver.async_save(large_state(4, 1), "memory");
  EXPECT_FALSE(first.written_through());
  const std::jthread later = gate.open_later();
  const SaveHandle second =
      saver.async_save(large_state(8, 2), "memory");  // the state is gone after the call
  EXPECT_TRUE(second.written_through());
  EXPECT_TRUE(second.done());
  EXPECT_TRUE(second.staging_done());
  EXPECT_EQ(second.progress().to_stage, 0U);
  second.wait();
  EXPECT_EQ(*place.load().find("t7"), *large_state(8, 2).find("t7"));
}

TEST(AsyncSave, ProgressGoesFromStagingToDone) {
  const SlowPlace place;
  GatedPlanner gate;
  std::uint64_t reported = 0;
  SaveOptions save = place.save_with(gate);
  save.progress = [&](const Progress& progress) { reported = progress.done; };
  AsyncSaver saver({.save = save});
  const SaveHandle handle = saver.async_save(large_state(8, 1), "memory");
  EXPECT_EQ(handle.progress().staged, handle.progress().to_stage);
  EXPECT_GE(handle.progress().to_stage, 8U << 20);
  EXPECT_LT(handle.progress().phase, SavePhase::kDone);
  while (handle.progress().phase != SavePhase::kWriting) std::this_thread::yield();
  EXPECT_LT(handle.progress().written, handle.progress().to_write);
  gate.open();
  handle.wait();
  EXPECT_EQ(name_of(handle.progress().phase), "done");
  EXPECT_EQ(handle.progress().written, handle.progress().to_write);
  EXPECT_EQ(handle.progress().written, reported);
  EXPECT_EQ(handle.id(), "memory");
}

// Notes where the writer's threads stand with the scheduler.
class PriorityPlanner : public DefaultSavePlanner {
 public:
  Value resolve_data(const WriteItem& item) override {
    nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
    return DefaultSavePlanner::resolve_data(item);
  }
  std::atomic<int> nice = -1;
};

TEST(AsyncSave, WritesAtALowerPriority) {
  const SlowPlace place;
  PriorityPlanner planner;
  SaveOptions save = place.save();
  save.planner = &planner;
  AsyncSaver saver({.save = save, .nice = 15, .io_priority = IoPriority::kIdle});
  saver.async_save(large_state(1, 1), "memory").wait();
  EXPECT_EQ(planner.nice, 15);
  EXPECT_LT(::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))), 15);
}

// Notes which memory snapshots take.
class NotingStager : public Stager {
 public:
  Snapshot stage(const StateDict& state, const StageRequest& request) override {
    Snapshot snapshot = inner->stage(state, request);
    places.insert(snapshot.state.find("t0")->get<Tensor>().view().data);
    return snapshot;
  }
  void synchronize() override { inner->synchronize(); }
  void close() override { inner->close(); }

  std::unique_ptr<Stager> inner = default_stager();
  std::set<const std::byte*> places;
};

TEST(AsyncSave, FiftySavesTakeTheMemoryOfOne) {
  const SlowPlace place;
  DefaultSavePlanner planner({.enable_plan_caching = true});
  SaveOptions save = place.save();
  save.planner = &planner;
  NotingStager stager;
  AsyncSaver saver({.save = save, .stager = &stager});
  for (int i = 0; i < 50; ++i) saver.async_save(large_state(2, i), "memory").wait();
  // Or two: who waits may be told a moment before the memory is given back.
  EXPECT_LE(stager.places.size(), 2U);
}

TEST(AsyncSave, WrongOptionsAreRefused) {
  const std::atomic<bool> token = false;
  const auto solo = solo_group();
  const auto code = [](const AsyncOptions& options) {
    return error_of([&] { AsyncSaver saver(options); }).code();
  };
  EXPECT_EQ(code({.max_in_flight = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.nice = 20}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.staging = {.threads = -1}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.save = {.cancelled = &token}}), ErrorCode::kInvalidArgument);
  AsyncSaver saver;
  EXPECT_EQ(error_of([&] { saver.async_save({}, "x", {.group = solo.get()}); }).code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
