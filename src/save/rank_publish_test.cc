// Ranks that save each for itself, one after the other, and nobody waits for anybody.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "cairn/cairn.h"
#include "cairn/gc.h"
#include "checkpoint/dcp_names.h"
#include "testing/crippled.h"
#include "testing/dcp.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/states.h"

namespace cairn {
namespace {

class RankLocal : public testing::Test {
 protected:
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::shared_ptr<FileSystem> files = faulty_file_system(memory_file_system(), faults);

  bool agreed = true;  // the ranks know of each other which save this is

  // Other shapes on other ranks.
  static StateDict state_of(int rank, int version) {
    StateDict state;
    state.set("w", Value(numbered({3 + rank}, 100 * version + rank)));
    state.set("rank", Value(rank));
    state.set("version", Value(version));
    return state;
  }

  // One rank's save, from its first step to its last, with no group.
  std::unique_ptr<StorageWriter> save_rank(int rank, int ranks, int version) {
    return save_with(rank, ranks, version, false);
  }

  // The same, or one of a single rank for all; `meanwhile` happens when its data is written.
  std::unique_ptr<StorageWriter> save_with(int rank, int ranks, int version, bool collective,
                                           const std::function<void()>& meanwhile = {}) {
    auto writer = dcp_writer(files);
    WriterRole role;
    role.rank = rank;
    role.world_size = ranks;
    role.is_coordinator = rank == 0;
    role.collective = collective;
    role.save_id[0] = static_cast<std::byte>(version);
    role.save_id[1] = static_cast<std::byte>(rank + 1);
    if (agreed) role.attempt[0] = static_cast<std::byte>(version);
    writer->set_up_storage_writer(role);
    const StateDict state = state_of(rank, version);
    SavePlannerOptions planning;
    planning.global.allow_partial = true;
    DefaultSavePlanner planner(planning);
    planner.set_world_size(1);
    planner.set_up_planner(state, nullptr, true);
    GlobalSavePlan global = planner.create_global_plan({planner.create_local_plan()});
    std::vector<SavePlan> plans = writer->prepare_global_plan(std::move(global.plans));
    std::vector<WrittenData> data;
    data.push_back(writer->write_data(planner.finish_plan(std::move(plans.front())), planner));
    if (meanwhile) meanwhile();
    Metadata metadata = *global.metadata;
    writer->finish(metadata, std::move(data));
    return writer;
  }

  void save_all(int version) {
    StateDict state = state_of(0, version);
    const auto writer = dcp_writer(files);
    save(state, "", {.writer = writer.get()});
  }

  // By several ranks together: each has a file of its own.
  void save_together(int ranks, int version) {
    run_ranks(ranks, [&](Group& group) {
      const auto writer = dcp_writer(files);
      save(trainer_state(group.rank(), ranks, version), "", {.group = &group, .writer = writer.get()});
    });
  }
  void load_together(int ranks, int version) {
    run_ranks(ranks, [&](Group& group) {
      StateDict state = trainer_state(group.rank(), ranks, 0);
      const auto reader = dcp_reader(files);
      load(state, "", {.group = &group, .reader = reader.get()});
      EXPECT_EQ(Value(state), Value(trainer_state(group.rank(), ranks, version)));
    });
  }

  // Every rank has its own of this version. Returns what the coordinator is warned of.
  std::string load_on(int ranks, const std::vector<int>& versions) {
    std::string warned;
    run_ranks(ranks, [&](Group& group) {
      const int version = versions[static_cast<std::size_t>(group.rank()) % versions.size()];
      StateDict state = state_of(group.rank(), 0);
      const auto reader = dcp_reader(files);
      const LoadResult result = load(state, "", {.group = &group, .reader = reader.get()});
      EXPECT_EQ(Value(state), Value(state_of(group.rank(), version))) << "rank " << group.rank();
      if (group.rank() == 0 && !result.warnings.empty()) warned = result.warnings.front();
    });
    return warned;
  }
  int version_for_all() {
    StateDict state;
    state.set("version", Value(0));
    const auto reader = dcp_reader(files);
    load(state, "", {.reader = reader.get()});
    return static_cast<int>(state.find("version")->get<std::int64_t>());
  }

  std::vector<std::string> metadata_files() const {
    std::vector<std::string> names;
    for (const FileEntry& file : files->list())
      if (file.name.find(".metadata") != file.name.npos) names.push_back(file.name);
    return names;
  }
  using Names = std::vector<std::string>;
  bool mentions_rank(const std::string& text, const std::string& ranks) const {
    return text.find("rank " + ranks + ".") != text.npos || text.ends_with("rank " + ranks);
  }
};

TEST_F(RankLocal, TheFirstSaveOfEachRankIsThereAtOnce) {
  save_rank(1, 2, 1);
  EXPECT_EQ(metadata_files(), (Names{"__1.metadata"}));
  save_rank(0, 2, 1);
  EXPECT_EQ(load_on(2, {1}), "");
}

TEST_F(RankLocal, ARankThatHasNotSavedYetIsNamed) {
  save_rank(0, 3, 1);
  StateDict state = state_of(0, 0);
  const auto reader = dcp_reader(files);
  const LoadResult result = load(state, "", {.reader = reader.get()});
  ASSERT_EQ(result.warnings.size(), 1U);
  EXPECT_TRUE(mentions_rank(result.warnings[0], "1, 2")) << result.warnings[0];
}

TEST_F(RankLocal, UntilEveryRankHasSavedTheEarlierOneLoads) {
  for (const int rank : {0, 1, 2}) save_rank(rank, 3, 1);
  const auto before = files->list().size();
  save_rank(2, 3, 2);
  EXPECT_TRUE(mentions_rank(load_on(3, {1}), "0, 1"));
  save_rank(0, 3, 2);
  EXPECT_TRUE(mentions_rank(load_on(3, {1}), "1"));
  save_rank(1, 3, 2);
  EXPECT_EQ(load_on(3, {2}), "");
  EXPECT_EQ(metadata_files(), (Names{"__0.metadata", "__1.metadata", "__2.metadata"}));
  EXPECT_EQ(files->list().size(), before);
}

TEST_F(RankLocal, RanksThatKnowNothingOfEachOtherMakeASetToo) {
  agreed = false;
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  save_rank(1, 2, 2);
  load_on(2, {1});
  save_rank(0, 2, 2);
  load_on(2, {2});
}

TEST_F(RankLocal, WhatAnAttemptThatDiedLeftIsNoPartOfTheNext) {
  for (const bool first : {true, false}) {
    files = faulty_file_system(memory_file_system(), faults);
    if (!first)
      for (const int rank : {0, 1}) save_rank(rank, 2, 1);
    save_rank(0, 2, 2);
    save_rank(1, 2, 3);
    if (!first) load_on(2, {1});
    save_rank(0, 2, 3);
    EXPECT_EQ(load_on(2, {3}), "");
    EXPECT_EQ(files->list().size(), 6U);
  }
}

TEST_F(RankLocal, UntilEveryRankHasSavedACheckpointOfAllLoads) {
  save_all(1);
  save_rank(1, 2, 2);
  EXPECT_EQ(version_for_all(), 1);
  save_rank(0, 2, 2);
  EXPECT_EQ(load_on(2, {2}), "");
  EXPECT_EQ(metadata_files(), (Names{"__0.metadata", "__1.metadata"}));
  EXPECT_EQ(files->list().size(), 6U);  // each with a manifest and a data file
}

TEST_F(RankLocal, ARankMaySaveAgainBeforeTheOthersHave) {
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  save_rank(0, 2, 2);
  save_rank(0, 2, 3);
  load_on(2, {1});
  save_rank(1, 2, 3);
  load_on(2, {3});
  EXPECT_EQ(files->list().size(), 6U);
}

TEST_F(RankLocal, FewerRanksLeaveNothingOfTheOthers) {
  for (const int rank : {0, 1, 2, 3}) save_rank(rank, 4, 1);
  save_rank(0, 2, 2);
  load_on(4, {1});
  save_rank(1, 2, 2);
  EXPECT_EQ(load_on(2, {2}), "");
  EXPECT_EQ(metadata_files(), (Names{"__0.metadata", "__1.metadata"}));
  EXPECT_EQ(files->list().size(), 6U);
}

TEST_F(RankLocal, MoreRanksTakeThePlaceOfFewer) {
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  for (const int rank : {2, 0}) save_rank(rank, 3, 2);
  load_on(2, {1});
  save_rank(1, 3, 2);
  EXPECT_EQ(load_on(3, {2}), "");
}

TEST_F(RankLocal, ASaveOfAllTakesThePlaceOfOneThatIsNotComplete) {
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  save_rank(0, 2, 2);
  save_all(3);
  EXPECT_EQ(version_for_all(), 3);
  EXPECT_EQ(metadata_files(), (Names{".metadata"}));
  EXPECT_EQ(files->list().size(), 3U);
  for (const int rank : {1, 0}) save_rank(rank, 2, 4);
  load_on(2, {4});
}

// From any call on nothing works any more for whoever completes the set: it is whole, or the one before is.
TEST_F(RankLocal, WhoeverCompletesTheSetMayDieOverIt) {
  for (const bool over_all : {false, true}) {
    for (std::uint64_t nth = 1;; ++nth) {
      faults = std::make_shared<Faults>();
      files = faulty_file_system(memory_file_system(), faults);
      if (over_all) save_all(1);
      if (!over_all)
        for (const int rank : {0, 1}) save_rank(rank, 2, 1);
      save_rank(0, 2, 2);
      faults->clear();
      faults->fail({.nth = nth, .for_ever = true});
      bool failed = false;
      try {
        save_rank(1, 2, 2);
      } catch (const Error&) {
        failed = true;
      }
      const bool reached = faults->fired() > 0;
      faults->clear();
      SCOPED_TRACE(nth);
      const int found = version_for_all();
      EXPECT_TRUE(found == 2 || (failed && found == 1));
      if (found == 2) load_on(2, {2});
      if (found == 1 && !over_all) load_on(2, {1});
      for (const int rank : {1, 0}) save_rank(rank, 2, 3);
      load_on(2, {3});
      if (!reached) break;
    }
  }
}

// Other jobs rename and remove what was listed a moment ago.
TEST_F(RankLocal, AFileThatIsGoneWhenItIsLookedIntoIsLookedForAgain) {
  for (const bool for_ever : {false, true}) {
    for (std::uint64_t nth = 1;; ++nth) {
      faults = std::make_shared<Faults>();
      files = faulty_file_system(memory_file_system(), faults);
      for (const int version : {1, 2})
        for (const int rank : {0, 1}) save_rank(rank, 2, version);
      faults->clear();
      faults->fail({.call = FileCall::kOpen, .nth = nth, .for_ever = for_ever, .os_error = ENOENT});
      SCOPED_TRACE(nth);
      try {
        save_rank(0, 2, 3);
      } catch (const Error& e) {
        EXPECT_TRUE(for_ever && e.code() == ErrorCode::kConflict) << e.what();
      }
      if (faults->fired() == 0) break;
      faults->clear();
      load_on(2, {2});
    }
  }
}

TEST_F(RankLocal, WhereLocksEndAtTheMachineTheEarlierOneLoadsTooUntilAllHaveSaved) {
  const std::shared_ptr<FileSystem> inner = std::move(files);
  files = std::make_shared<CrippledFileSystem>(*inner, Lacks{.locks = true});
  for (const int rank : {0, 1, 2}) save_rank(rank, 3, 1);
  save_rank(0, 2, 2);
  load_on(3, {1});
  save_rank(1, 2, 2);
  load_on(2, {2});
  EXPECT_EQ(metadata_files(), (Names{"__0.metadata", "__1.metadata"}));
  EXPECT_EQ(files->list().size(), 6U);
}

TEST_F(RankLocal, CleaningUpLeavesWhatWaitsForOthers) {
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  save_rank(0, 2, 2);
  EXPECT_TRUE(gc(*files, {.force = true}).files.empty());
  save_rank(1, 2, 2);
  load_on(2, {2});
}

TEST_F(RankLocal, WhileSomebodyHoldsItsLockACheckpointOfAllKeepsItsFiles) {
  save_together(4, 1);
  auto lock = files->lock(lock_name());
  for (const int rank : {0, 1}) save_rank(rank, 2, 2);
  load_together(4, 1);
  lock.reset();
  for (const int rank : {0, 1}) save_rank(rank, 2, 3);
  load_on(2, {3});
  EXPECT_EQ(files->list().size(), 6U);
}

TEST_F(RankLocal, FilesOfASaveOfAllUnderWayStayWhenASetIsComplete) {
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  SaveId save{};
  save[0] = std::byte{7};
  const std::string theirs = data_file_name(2, 0, save);
  put_file(*files, theirs, "being written");
  auto lock = files->lock(lock_name());
  for (const int rank : {0, 1}) save_rank(rank, 2, 2);
  load_on(2, {2});
  EXPECT_TRUE(files->stat(theirs));
  lock.reset();
  for (const int rank : {0, 1}) save_rank(rank, 2, 3);
  EXPECT_FALSE(files->stat(theirs));
}

TEST_F(RankLocal, ASaveOfAllKeepsItsDataWhileRanksSaveForThemselves) {
  save_all(1);
  save_with(0, 1, 2, true, [&] { save_rank(0, 1, 3); });
  EXPECT_EQ(version_for_all(), 2);
  EXPECT_EQ(metadata_files(), (Names{".metadata"}));
  EXPECT_EQ(files->list().size(), 3U);
}

TEST_F(RankLocal, ASaveWhoseDataIsGoneSaysSo) {
  save_all(1);
  const auto before = files->list();
  const auto lose_data = [&] {
    for (const FileEntry& file : files->list())
      if (std::find(before.begin(), before.end(), file) == before.end() && file.name.ends_with(".distcp"))
        files->remove(file.name);
  };
  EXPECT_EQ(code_of([&] { save_with(0, 1, 2, true, lose_data); }), ErrorCode::kConflict);
  EXPECT_EQ(version_for_all(), 1);
}

TEST_F(RankLocal, WhatADeadSaveLeftGoesWithTheNextThatHasBothLocks) {
  save_rank(0, 1, 1);
  SaveId dead{};
  dead[0] = std::byte{9};
  const std::string data = data_file_name(0, 0, dead);
  put_file(*files, data, "of somebody");
  auto lock = files->lock(lock_name());
  save_rank(0, 1, 2);
  EXPECT_TRUE(files->stat(data));
  lock.reset();
  save_rank(0, 1, 3);
  EXPECT_FALSE(files->stat(data));
  load_on(1, {3});
}

TEST_F(RankLocal, WhatADeadSaveLeftGoesAlsoWhileAnotherRankCleansUp) {
  save_rank(0, 1, 1);
  SaveId dead{};
  dead[0] = std::byte{9};
  const std::string data = data_file_name(0, 0, dead);
  put_file(*files, data, "of somebody");
  auto lock = files->lock(lock_name());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lock.reset();
  });
  save_rank(0, 1, 2);
  other.join();
  EXPECT_FALSE(files->stat(data));
}

TEST_F(RankLocal, ASaveIsPublishedWhenTheSetStands) {
  for (const int rank : {0, 1}) save_rank(rank, 2, 1);
  const auto writer = save_rank(1, 2, 2);
  EXPECT_FALSE(writer->is_published());
  save_rank(0, 2, 2);
  EXPECT_TRUE(writer->is_published());
  writer->retire_collective();
}

TEST_F(RankLocal, RanksThatFoundDifferentCheckpointsAreToldThatTheirsDoesNotStand) {
  save_all(1);
  const auto writer = save_rank(0, 2, 2);
  auto lock = files->lock(lock_name(0));  // so that what it has stays
  save_all(3);
  lock.reset();
  save_rank(1, 2, 2);
  EXPECT_EQ(code_of([&] { writer->retire_collective(); }), ErrorCode::kConflict);
  EXPECT_EQ(version_for_all(), 3);
}

TEST_F(RankLocal, WhoeverCompletesTheSetWaitsForOneWhoHoldsTheLockForAWhile) {
  save_all(1);
  auto lock = files->lock(lock_name());
  std::unique_ptr<StorageWriter> writer;
  for (const int rank : {1, 0}) writer = save_rank(rank, 2, 2);
  EXPECT_EQ(version_for_all(), 1);
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lock.reset();
  });
  writer->retire_collective();
  holder.join();
  load_on(2, {2});
}

TEST_F(RankLocal, WhileASaveOfAllIsUnderWayNoSetStands) {
  save_all(1);
  const auto lock = files->lock(lock_name());
  const auto writer = save_rank(0, 1, 2);
  EXPECT_EQ(code_of([&] { writer->retire_collective(); }), ErrorCode::kConflict);
  EXPECT_EQ(version_for_all(), 1);
}

}  // namespace
}  // namespace cairn
