// Every call to the file system fails once, or for ever: a save or load succeeds or says why, and the
// checkpoint that was there before stays whole.
#include <gtest/gtest.h>

#include <cerrno>

#include "cairn/cairn.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/states.h"

namespace cairn {
namespace {

constexpr int kRanks = 2;

// A file system in memory that can be made to fail.
struct Place {
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::shared_ptr<FileSystem> files = faulty_file_system(memory_file_system(), faults);
};

// Saves on two ranks. The text of the error, which must be the same on both; empty when it succeeded.
std::string save_to(const Place& place, int version) {
  std::vector<std::string> texts(kRanks);
  run_ranks(kRanks, [&](Group& group) {
    const auto writer = dcp_writer(place.files, {.files_per_rank = 2});
    try {
      save(trainer_state(group.rank(), kRanks, version), "memory", {.group = &group, .writer = writer.get()});
    } catch (const CheckpointError& e) {
      texts[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  EXPECT_EQ(texts[0], texts[1]);
  return texts[0];
}

StateDict load_from(const Place& place) {
  const auto reader = dcp_reader(place.files, {.verify = Verify::kFull});
  return load_into_new("memory", std::nullopt, {.reader = reader.get()});
}

// The version that is there, every element of it checked.
int version_in(const Place& place) {
  const StateDict state = load_from(place);
  const auto version = static_cast<int>(state.find("step")->get<std::int64_t>());
  const Dict& model = state.find("model")->get<Dict>();
  EXPECT_EQ(*model.find("w"), Value(numbered({37, 24}, version)));
  EXPECT_EQ(*model.find("b"), Value(numbered({24}, version + 1)));
  EXPECT_EQ(*state.find("optim")->get<Dict>().find("exp_avg"), Value(numbered({129, 40}, version + 3)));
  return version;
}

// How many calls an overwriting save makes.
std::uint64_t calls_of_a_save() {
  const Place place;
  save_to(place, 1);
  place.faults->clear();
  save_to(place, 2);
  return place.faults->trace().size();
}

void overwrite_with(const Fault& fault) {
  SCOPED_TRACE(testing::Message() << "call " << fault.nth << (fault.for_ever ? " for ever" : "")
                                  << (fault.after ? " after" : "") << (fault.halfway ? " halfway" : ""));
  const Place place;
  ASSERT_EQ(save_to(place, 1), "");
  place.faults->clear();
  place.faults->fail(fault);
  const std::string error = save_to(place, 2);
  const std::uint64_t fired = place.faults->fired();
  place.faults->clear();

  const int version = version_in(place);
  if (error.empty()) {
    EXPECT_EQ(version, 2) << "a save that succeeded is there";
  } else {
    EXPECT_TRUE(version == 1 || version == 2);
    EXPECT_GT(fired, 0U);
    EXPECT_NE(error.find(fault.os_error == ENOSPC ? "No space left" : "Input/output error"),
              std::string::npos)
        << error;
  }
  ASSERT_EQ(save_to(place, 3), "") << "the next save needs no help";
  EXPECT_EQ(version_in(place), 3);
  EXPECT_EQ(place.files->list().size(), 6U) << "metadata, manifest, four data files";
}

TEST(Faults, EachCallOfASaveMayFailOnce) {
  const std::uint64_t calls = calls_of_a_save();
  ASSERT_GT(calls, 30U);
  for (std::uint64_t n = 1; n <= calls + 3; ++n)
    overwrite_with({.nth = n, .os_error = n % 2 == 0 ? EIO : ENOSPC});
}

TEST(Faults, EachCallOfASaveMayBeTheFirstOfManyToFail) {
  const std::uint64_t calls = calls_of_a_save();
  for (std::uint64_t n = 1; n <= calls + 3; ++n) overwrite_with({.nth = n, .for_ever = true});
}

TEST(Faults, EachCallOfASaveMayFailAfterItsWorkIsDone) {
  const std::uint64_t calls = calls_of_a_save();
  for (std::uint64_t n = 1; n <= calls + 3; ++n) overwrite_with({.nth = n, .after = true});
}

TEST(Faults, EachWriteMayStopHalfway) {
  const std::uint64_t calls = calls_of_a_save();
  for (std::uint64_t n = 1; n <= calls + 3; ++n)
    overwrite_with({.nth = n, .os_error = ENOSPC, .halfway = true});
}

TEST(Faults, EachKindOfCallMayFail) {
  for (const FileCall call : {FileCall::kCreate, FileCall::kWrite, FileCall::kCommit, FileCall::kStat,
                              FileCall::kList, FileCall::kRemove, FileCall::kSync, FileCall::kLock}) {
    for (std::uint64_t n = 1; n <= 8; ++n) {
      overwrite_with({.call = call, .nth = n});
      overwrite_with({.call = call, .nth = n, .for_ever = true});
    }
  }
}

TEST(Faults, AFileThatGetsNoRoomNamesATensor) {
  const Place place;
  place.faults->fail({.call = FileCall::kCreate, .for_ever = true, .os_error = ENOSPC});
  const std::string error = save_to(place, 1);
  EXPECT_NE(error.find("tensor '"), std::string::npos) << error;
  EXPECT_NE(error.find(".distcp"), std::string::npos) << error;
}

TEST(Faults, LowSpaceIsAnErrorAWarningOrNothing) {
  const Place place;
  place.faults->set_room(100);
  const auto save_with = [&](OnLowSpace low_space) {
    const auto writer = dcp_writer(place.files, {.low_space = low_space});
    return save(trainer_state(0, 1, 1), "memory", {.writer = writer.get()});
  };
  const Error error = error_of([&] { save_with(OnLowSpace::kError); });
  EXPECT_TRUE(mentions(error, "room for 100") && mentions(error, "tensor 'model.w'")) << error.what();
  EXPECT_TRUE(place.files->list().empty());
  EXPECT_TRUE(save_with(OnLowSpace::kIgnore).warnings.empty());
  const std::vector<std::string> warnings = save_with(OnLowSpace::kWarn).warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("room for 100"), std::string::npos) << warnings[0];
  EXPECT_EQ(version_in(place), 1);
  place.faults->set_room(std::nullopt);
  EXPECT_TRUE(save_with(OnLowSpace::kWarn).warnings.empty());
}

TEST(Faults, EachCallOfALoadMayFail) {
  const Place place;
  ASSERT_EQ(save_to(place, 1), "");
  place.faults->clear();
  ASSERT_EQ(version_in(place), 1);
  const std::uint64_t calls = place.faults->trace().size();
  for (std::uint64_t n = 1; n <= calls; ++n) {
    for (const bool for_ever : {false, true}) {
      place.faults->clear();
      place.faults->fail({.nth = n, .for_ever = for_ever});
      const Error e = error_of([&] { load_from(place); });
      EXPECT_EQ(e.code(), ErrorCode::kIo) << e.what();
      EXPECT_TRUE(mentions(e, "Input/output error")) << e.what();
    }
  }
}

}  // namespace
}  // namespace cairn
