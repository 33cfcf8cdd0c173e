#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/sink.h"
#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/plan_steps.h"
#include "cairn/verify.h"
#include "checkpoint/dcp_names.h"
#include "format/manifest.h"
#include "format/torch_file.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/states.h"

namespace cairn {
namespace {

// Saves trainer_state on `ranks` ranks.
std::vector<SaveResult> save_on(int ranks, const std::string& path, int version, SaveOptions options = {}) {
  std::vector<SaveResult> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Group& group) {
    SaveOptions mine = options;
    mine.group = &group;
    results[static_cast<std::size_t>(group.rank())] =
        save(trainer_state(group.rank(), ranks, version), path, mine);
  });
  return results;
}

void expect_version(const std::string& path, int version) {
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_EQ(Value(checkpoint->read("model.w")), Value(numbered({37, 24}, version)));
  EXPECT_EQ(Value(checkpoint->read("model.b")), Value(numbered({24}, version + 1)));
  EXPECT_EQ(Value(checkpoint->read("model.empty")), Value(numbered({0, 3}, version)));
  EXPECT_EQ(Value(checkpoint->read("model.scalar")), Value(numbered({}, version + 2)));
  EXPECT_EQ(Value(checkpoint->read("optim.exp_avg")), Value(numbered({129, 40}, version + 3)));
  EXPECT_EQ(checkpoint->object("step"), Value(version));
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const FileEntry& entry : posix_file_system(path)->list()) names.push_back(entry.name);
  return names;
}

Manifest manifest_in(const std::string& path, const SaveId& save) {
  return read_manifest(*posix_file_system(path)->open(manifest_name(save)));
}

class Save : public testing::Test {
 protected:
  TestFolder folder;
  const std::string path = folder / "run/step-1";
};

TEST_F(Save, AloneWritesACheckpoint) {
  const SaveResult result = save(trainer_state(0, 1, 5), path);
  expect_version(path, 5);
  EXPECT_EQ(result.metadata->state_dict_metadata.size(), 8U);
  EXPECT_EQ(names_in(path), (std::vector<std::string>{manifest_name(result.save_id), ".metadata",
                                                      data_file_name(0, 0, result.save_id)}));
}

TEST_F(Save, ManyRanksWriteOneCheckpoint) {
  for (const int ranks : {2, 3, 4}) {
    save_on(ranks, path, ranks);
    expect_version(path, ranks);
  }
}

TEST_F(Save, OnlyTheCoordinatorHasTheMetadata) {
  const auto results = save_on(3, path, 1);
  EXPECT_NE(results[0].metadata, nullptr);
  EXPECT_EQ(results[1].metadata, nullptr);
  EXPECT_EQ(results[0].save_id, results[2].save_id);
  EXPECT_GT(results[1].bytes, 0U);
}

TEST_F(Save, AnotherRankMayCoordinate) {
  SaveOptions options;
  options.coordinator_rank = 2;
  const auto results = save_on(3, path, 1, options);
  EXPECT_NE(results[2].metadata, nullptr);
  expect_version(path, 1);
}

TEST_F(Save, TheManifestKnowsEveryFileAndEveryItem) {
  const auto results = save_on(2, path, 1);
  const Manifest manifest = manifest_in(path, results[0].save_id);
  std::vector<std::string> names;
  std::size_t items = 0;
  for (const ManifestFile& file : manifest.files) {
    names.push_back(file.name);
    items += file.items.size();
    const auto source = posix_file_system(path)->open(file.name);
    const std::string bytes = read_all(*source);
    ChecksumStream sums;
    sums.append(as_bytes(bytes));
    EXPECT_EQ(sums.finish(file.name).block_crcs, file.block_crcs) << file.name;
    EXPECT_EQ(bytes.size(), file.size);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{".metadata", data_file_name(0, 0, results[0].save_id),
                                             data_file_name(1, 0, results[0].save_id)}));
  EXPECT_EQ(items, results[0].metadata->storage_data.size());
}

TEST_F(Save, AnOverwriteLeavesNothingOfTheOldOne) {
  save_on(2, path, 1);
  const auto results = save_on(3, path, 2);
  expect_version(path, 2);
  EXPECT_EQ(names_in(path).size(), 5U);  // metadata, manifest, three data files
  for (const std::string& name : names_in(path))
    EXPECT_TRUE(name == ".metadata" || name.find(to_string(results[0].save_id)) != name.npos) << name;
}

TEST_F(Save, OverwritingCanBeForbidden) {
  save_on(2, path, 1);
  SaveOptions options;
  options.write.overwrite = false;
  const Error e = error_of([&] { save_on(2, path, 2, options); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(e, "overwriting is off"));
  expect_version(path, 1);
}

TEST_F(Save, ASecondSaverGetsAConflict) {
  save_on(2, path, 1);
  const auto files = posix_file_system(path);
  const auto held = files->lock(lock_name());
  EXPECT_EQ(error_of([&] { save_on(2, path, 2); }).code(), ErrorCode::kConflict);
  expect_version(path, 1);
}

TEST_F(Save, ErrorsOnOneRankAreEverybodysAndTheOldCheckpointStays) {
  save_on(2, path, 1);
  std::vector<std::string> texts(2);
  run_ranks(2, [&](Group& group) {
    StateDict state = trainer_state(group.rank(), 2, 2);
    if (group.rank() == 1) {
      TensorView nowhere = numbered({4}, 1).view();
      nowhere.data = nullptr;
      state.set("bad", Value(Tensor(nowhere, nullptr)));
    }
    try {
      save(state, path, {.group = &group});
    } catch (const CheckpointError& e) {
      texts[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  EXPECT_NE(texts[0].find("tensor 'bad'"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[1], texts[0]);
  expect_version(path, 1);
  EXPECT_EQ(names_in(path).size(), 4U) << "what the failed save wrote is gone";
}

TEST_F(Save, ARankThatHearsNothingOfItsSecondSaveDoesNotTakeTheFirstForIt) {
  const std::shared_ptr<FileSystem> files = memory_file_system();
  std::vector<std::string> texts(2);
  run_ranks(2, [&](Group& group) {
    const auto writer = dcp_writer(files);  // kept, as trainers do
    const SaveOptions options{.group = &group, .writer = writer.get()};
    save(trainer_state(group.rank(), 2, 1), "memory", options);
    if (group.rank() == 0) return;  // dies, before it says which save comes next
    try {
      save(trainer_state(group.rank(), 2, 2), "memory", options);
    } catch (const CheckpointError& e) {
      texts[1] = e.what();
    }
  });
  EXPECT_NE(texts[1].find("rank 0 has left the group"), std::string::npos) << texts[1];
}

TEST_F(Save, WithoutChecksumsAVoteStillNamesItsSave) {
  const std::shared_ptr<FileSystem> files = memory_file_system();
  const auto writer = dcp_writer(files, {.checksums = false});
  const auto older = dcp_writer(files, {.checksums = false});
  DefaultSavePlanner planner;
  WriterRole role;
  role.save_id = random_save_id();
  writer->set_up_storage_writer(role);
  role.save_id = random_save_id();
  role.is_coordinator = false;
  older->set_up_storage_writer(role);
  const SavePlan nothing = create_default_local_save_plan({});
  Metadata metadata;
  const Error e = error_of([&] { writer->finish(metadata, {older->write_data(nothing, planner)}); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict) << e.what();
}

TEST_F(Save, DebrisOfADeadSaveGoesWithTheNext) {
  save_on(1, path, 1);
  SaveId dead{};
  folder.write("run/step-1/" + data_file_name(3, 0, dead), "half");
  folder.write("run/step-1/" + manifest_name(dead), "half");
  folder.write("run/step-1/.metadata.0123456789abcdef.cairn-partial", "half");
  folder.write("run/step-1/notes.txt", "mine");
  save_on(1, path, 2);
  expect_version(path, 2);
  EXPECT_EQ(names_in(path).size(), 4U);
  EXPECT_TRUE(std::filesystem::exists(path + "/notes.txt"));
}

TEST_F(Save, WithoutCollectivesEveryRankWritesItsOwn) {
  SaveOptions options;
  options.use_collectives = false;
  save_on(3, path, 7, options);
  EXPECT_FALSE(std::filesystem::exists(path + "/.metadata"));
  EXPECT_TRUE(std::filesystem::exists(path + "/__2.metadata"));
  expect_version(path, 7);
  save_on(3, path, 8, options);
  expect_version(path, 8);
  EXPECT_EQ(names_in(path).size(), 9U);
}

TEST_F(Save, OptionsOfTheFiles) {
  SaveOptions options;
  options.write.files_per_rank = 3;
  options.write.durable = false;
  options.write.strong_hashes = true;
  const auto results = save_on(2, path, 1, options);
  expect_version(path, 1);
  EXPECT_EQ(names_in(path).size(), 8U);
  EXPECT_TRUE(manifest_in(path, results[0].save_id).strong);
}

TEST_F(Save, ZstdItemsAreReadBack) {
  SaveOptions options;
  options.write.transforms = {"zstd"};
  save_on(2, path, 3, options);
  expect_version(path, 3);
}

// Encodes everything itself: tensors as ten times what they are, objects as the word "mine".
struct EncodingPlanner : DefaultSavePlanner {
  std::optional<std::string> resolve_archive(const WriteItem& item) override {
    StringSink archive;
    if (item.tensor_data) {
      const Tensor tensor = DefaultSavePlanner::resolve_data(item).get<Tensor>();
      Tensor changed = Tensor::empty(tensor.view().dtype, tensor.view().shape);
      const auto* from = reinterpret_cast<const std::int32_t*>(tensor.view().data);
      auto* to = reinterpret_cast<std::int32_t*>(changed.bytes().data());
      for (std::int64_t i = 0; i < changed.view().numel(); ++i) to[i] = 10 * from[i];
      write_torch_file(archive, Value(changed));
    } else {
      write_torch_file(archive, Value("mine"));
    }
    return archive.text;
  }
};

TEST_F(Save, APlannerMayEncodeItemsItself) {
  StateDict state;
  Tensor tensor = Tensor::empty(DType::kInt32, {3});
  for (int i = 0; i < 3; ++i) reinterpret_cast<std::int32_t*>(tensor.bytes().data())[i] = i;
  state.set("w", Value(tensor));
  state.set("step", Value(7));
  for (const std::vector<std::string>& transforms : {std::vector<std::string>{}, {"zstd"}}) {
    EncodingPlanner planner;
    SaveOptions options;
    options.planner = &planner;
    options.write.transforms = transforms;
    save(state, path, options);
    const auto checkpoint = Checkpoint::open(path);
    const Tensor stored = checkpoint->read("w");
    EXPECT_EQ(reinterpret_cast<const std::int32_t*>(stored.view().data)[2], 20);
    EXPECT_EQ(checkpoint->object("step"), Value("mine"));
    EXPECT_TRUE(verify(path).ok());
  }
}

TEST_F(Save, WithoutChecksumsThereIsNoManifest) {
  SaveOptions options;
  options.write.checksums = false;
  save_on(2, path, 3, options);
  expect_version(path, 3);
  EXPECT_EQ(names_in(path).size(), 3U);
}

TEST_F(Save, LargeTensorsAreAlignedInTheFile) {
  StateDict state;
  state.set("w", Value(numbered({512, 1024}, 1)));
  const SaveResult result = save(state, path);
  const StorageInfo place = result.metadata->storage_data.info(0);
  const auto file = TorchFile::open(slice_of(posix_file_system(path)->open(place.relative_path),
                                             static_cast<std::uint64_t>(place.offset),
                                             static_cast<std::uint64_t>(place.length)));
  EXPECT_EQ((static_cast<std::uint64_t>(place.offset) + file->tensors().front().data_offset) % 4096, 0U);
}

TEST_F(Save, AnUnchangedPlanCostsFewBytes) {
  run_ranks(3, [&](Group& group) {
    SavePlannerOptions planning;
    planning.enable_plan_caching = true;
    DefaultSavePlanner planner(planning);
    StateDict state = trainer_state(group.rank(), 3, 1);
    save(state, path, {.group = &group, .planner = &planner});
    for (std::byte& b : state.find("model")->get<Dict>().find("b")->get<Tensor>().bytes()) b = std::byte{9};
    const SaveResult second = save(state, path, {.group = &group, .planner = &planner});
    EXPECT_LT(group.rank() == 1 ? second.bytes_exchanged : 0, 1024U);
  });
  const Tensor b = Checkpoint::open(path)->read("model.b");
  EXPECT_EQ(std::as_const(b).bytes()[5], std::byte{9});
}

TEST_F(Save, StatefulPartsAreAsked) {
  struct Counter : Stateful {
    StateDict state_dict() override { return {{"n", Value(41)}}; }
    void load_state_dict(const StateDict&) override {}
  } counter;
  AppState app;
  app.add("counter", counter);
  app.add("step", Value(3));
  save(app, path);
  EXPECT_EQ(Checkpoint::open(path)->object("counter.n"), Value(41));
  EXPECT_EQ(*app.find("step"), Value(3));
  EXPECT_EQ(app.find("counter"), nullptr);
}

TEST_F(Save, ProgressEndsAtTheTotal) {
  SaveOptions options;
  Progress last;
  options.progress = [&](const Progress& progress) { last = progress; };
  save(trainer_state(0, 1, 1), path, options);
  EXPECT_GT(last.total, 0U);
  EXPECT_EQ(last.done, last.total);
}

TEST_F(Save, NonsenseIsRefused) {
  const StateDict state = trainer_state(0, 1, 1);
  const auto code = [&](const SaveOptions& options) {
    return error_of([&] { save(state, path, options); }).code();
  };
  EXPECT_EQ(code({.write = {.files_per_rank = -1}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.write = {.memory_budget = 1}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.write = {.transforms = {"rot13"}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(code({.coordinator_rank = 1}), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
