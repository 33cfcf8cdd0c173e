// The whole life of a checkpoint on every kind of file system: saved, loaded, looked at, verified, converted,
// overwritten, cleaned up.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "cairn/cairn.h"
#include "cairn/checkpoint.h"
#include "cairn/convert.h"
#include "cairn/gc.h"
#include "cairn/storage.h"
#include "cairn/verify.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/mount.h"
#include "testing/states.h"

namespace cairn {
namespace {

struct PlaceKind {
  const char* name;
  std::function<std::string(const std::string& folder)> url_of;
  std::vector<const char*> mount = {};  // the switches of a mount that it is behind
};

const PlaceKind kPlaceKinds[] = {
    {"path", [](const std::string& folder) { return folder; }},
    {"file_url", [](const std::string& folder) { return "file://" + folder; }},
    {"memory", [](const std::string& folder) { return "memory:/" + folder; }},
    {"crippled_mount",
     [](const std::string& folder) { return folder; },
     {"no-links", "no-exclusive-rename", "no-directory-sync", "no-direct", "flock-per-mount", "stale"}},
};

class AnyPlace : public testing::TestWithParam<PlaceKind> {
 protected:
  void SetUp() override {
    if (!GetParam().mount.empty()) {
      if (const std::string why = why_no_mounts(); !why.empty()) GTEST_SKIP() << why;
      mount_.emplace(folder_.path(), GetParam().mount);
    }
    root_ = GetParam().url_of(mount_ ? mount_->path() : folder_.path());
  }
  std::string url(const std::string& name) const { return root_ + "/" + name; }

  static StateDict state(int seed) {
    return {{"model", Dict{{"w", numbered({64, 8}, seed)}, {"b", numbered({5}, seed + 1)}}}, {"step", seed}};
  }
  static void expect_holds(const std::string& url, int seed) {
    StateDict loaded = load_into_new(url);
    EXPECT_EQ(loaded, state(seed)) << url;
  }

  const TestFolder folder_;
  std::optional<CrippledMount> mount_;
  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(All, AnyPlace, testing::ValuesIn(kPlaceKinds),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(AnyPlace, WhatIsSavedIsLoadedAndWhole) {
  save(state(1), url("run/step-1"));
  expect_holds(url("run/step-1"), 1);
  EXPECT_TRUE(verify(url("run/step-1")).ok());
  const auto checkpoint = Checkpoint::open(url("run/step-1"));
  EXPECT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->files().size(), 3U) << "data, manifest, metadata";
}

TEST_P(AnyPlace, AnOverwriteLeavesNothingOfTheOld) {
  save(state(1), url("step"));
  save(state(2), url("step"));
  expect_holds(url("step"), 2);
  EXPECT_EQ(file_system_of(url("step"))->list().size(), 3U);
  SaveOptions careful;
  careful.write.overwrite = false;
  EXPECT_THROW(save(state(3), url("step"), careful), CheckpointError);
  expect_holds(url("step"), 2);
}

TEST_P(AnyPlace, AFolderAndAFileAreOpenedThroughTheFolderAboveThem) {
  save(state(1), url("run/step-1"));
  convert(url("run/step-1"), url("run/flat.pt"));
  const std::shared_ptr<FileSystem> run = file_system_of(url("run"));
  EXPECT_EQ(Checkpoint::open(run, "step-1")->format(), Format::kDcp);
  EXPECT_EQ(Checkpoint::open(run, "flat.pt")->format(), Format::kTorchFile);
  EXPECT_EQ(Checkpoint::open(run->enter("step-1"))->format(), Format::kDcp);
  EXPECT_EQ(code_of([&] { Checkpoint::open(run, "step-2"); }), ErrorCode::kNotFound);
  const Error above = error_of([&] { Checkpoint::open(run); });
  EXPECT_TRUE(mentions(above, "'step-1'")) << above.what();
}

TEST_P(AnyPlace, ItIsConvertedThereAndBack) {
  save(state(1), url("step"));
  convert(url("step"), url("out/flat.pt"));
  convert(url("out/flat.pt"), url("again"), {.ranks = 2});
  expect_holds(url("again"), 1);
  convert(url("step"), url("hub"), {.to = Format::kHuggingFace, .skip_objects = true});
  convert(url("step"), url("out/model.safetensors"), {.skip_objects = true});
  for (const char* made : {"out/flat.pt", "again", "hub", "out/model.safetensors"}) {
    EXPECT_TRUE(verify(url(made)).ok()) << made;
    EXPECT_EQ(Checkpoint::open(url(made))->tensors().size(), 2U) << made;
  }
}

TEST_P(AnyPlace, AConversionRefusesItsSourceAndWhatIsThere) {
  save(state(1), url("step"));
  convert(url("step"), url("flat.pt"));
  EXPECT_EQ(code_of([&] { convert(url("step"), url("flat.pt")); }), ErrorCode::kConflict);
  EXPECT_EQ(code_of([&] { convert(url("flat.pt"), url("step")); }), ErrorCode::kConflict);
  const ConvertOptions over{.overwrite = true};
  EXPECT_EQ(code_of([&] { convert(url("step"), url("step"), over); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { convert(url("flat.pt"), url("flat.pt"), over); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { convert(url("flat.pt"), url("step"), {.to = Format::kTorchFile}); }),
            ErrorCode::kConflict);
}

TEST_P(AnyPlace, AConversionThatFailsTakesTheFoldersWithItThatItMade) {
  save(state(1), url("step"));
  const auto files = file_system_of(url("step"));
  for (const FileEntry& entry : files->list())
    if (entry.name.ends_with(".distcp")) files->remove(entry.name);
  EXPECT_THROW(convert(url("step"), url("a/b/flat.pt")), Error);
  EXPECT_EQ(find_place(url("a")).files, nullptr);
}

TEST_P(AnyPlace, WhatADeadSaveLeftGoes) {
  save(state(1), url("step"));
  const auto files = file_system_of(url("step"));
  files->create("__0_0.00000000000000000000000000000000.distcp")->commit();
  EXPECT_EQ(gc(url("step"), {.dry_run = true}).files.size(), 1U);
  EXPECT_EQ(gc(url("step")).files.size(), 1U);
  EXPECT_EQ(files->list().size(), 3U);
  expect_holds(url("step"), 1);
}

TEST_P(AnyPlace, DamageIsFound) {
  save(state(1), url("step"));
  const auto files = file_system_of(url("step"));
  for (const FileEntry& entry : files->list()) {
    if (!entry.name.ends_with(".distcp")) continue;
    auto shorter = files->create(entry.name, {.replace = true});
    shorter->write_at(0, std::vector<std::byte>(entry.size / 2));
    shorter->commit();
  }
  EXPECT_FALSE(verify(url("step")).ok());
  EXPECT_THROW(load_into_new(url("step")), CheckpointError);
}

}  // namespace
}  // namespace cairn
