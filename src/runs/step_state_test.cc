#include "runs/step_state.h"

#include <gtest/gtest.h>

#include "cairn/cairn.h"
#include "storage/write_file.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/states.h"

namespace cairn {
namespace {

class StepStates : public testing::Test {
 protected:
  void save_at(FileSystem& files, const std::string& folder) {
    StateDict state;
    state.set("w", Value(numbered({100, 100}, 1)));
    save(state, folder, {.files = files.enter(folder, true)});
  }
  StepState look(const std::string& name) {
    for (const FileEntry& entry : run_->entries())
      if (entry.name == name) return look_at_step(run_, entry);
    return {.why = "not listed"};
  }
  std::string data_file(const FileSystem& folder) {
    for (const FileEntry& entry : folder.list())
      if (entry.name.ends_with(".distcp")) return entry.name;
    return "";
  }

  std::shared_ptr<FileSystem> run_ = memory_file_system();
};

TEST_F(StepStates, AWholeCheckpointIsOne) {
  save_at(*run_, "step-1");
  const StepState state = look("step-1");
  EXPECT_TRUE(state.complete) << state.why;
  EXPECT_GT(state.bytes, 40'000U);
}

TEST_F(StepStates, WhatIsMissingOrCutOffIsTold) {
  save_at(*run_, "step-1");
  const auto folder = run_->enter("step-1");
  const std::string data = data_file(*folder);
  write_file(*folder, data, "short", {.replace = true});
  EXPECT_TRUE(look("step-1").why.starts_with(data + " has 5 bytes of ")) << look("step-1").why;
  folder->remove(data);
  EXPECT_EQ(look("step-1").why, data + " is missing");
  write_file(*folder, ".metadata", "no pickle", {.replace = true});
  EXPECT_FALSE(look("step-1").complete);
  folder->remove(".metadata");
  EXPECT_FALSE(look("step-1").complete);
  EXPECT_FALSE(look("step-1").why.empty());
}

TEST_F(StepStates, SeveralCheckpointsInOneFolderAreAllToBeWhole) {
  const auto step = run_->enter("checkpoint_3", true);
  save_at(*step, "model_0");
  save_at(*step, "optimizer_0");
  (void)step->enter("samplers", true);
  const StepState whole = look("checkpoint_3");
  EXPECT_TRUE(whole.complete) << whole.why;
  EXPECT_GT(whole.bytes, 80'000U);
  const auto optimizer = step->enter("optimizer_0");
  optimizer->remove(data_file(*optimizer));
  EXPECT_TRUE(look("checkpoint_3").why.starts_with("optimizer_0: ")) << look("checkpoint_3").why;
}

TEST_F(StepStates, WhatTheSystemCannotTellIsThrown) {
  const auto faults = std::make_shared<Faults>();
  std::shared_ptr<FileSystem> plain = memory_file_system();
  save_at(*plain, "step-1");
  const auto faulty = std::shared_ptr<FileSystem>(faulty_file_system(plain->enter("step-1"), faults));
  faults->fail({.call = FileCall::kRead, .for_ever = true});
  EXPECT_EQ(code_of([&] { look_at_step(faulty, {".metadata", 0, FileEntry::Kind::kFile}); }), ErrorCode::kIo);
}

}  // namespace
}  // namespace cairn
