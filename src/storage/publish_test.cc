#include "storage/publish.h"

#include <gtest/gtest.h>

#include "base/test_errors.h"
#include "storage/dcp_names.h"
#include "storage/faulty.h"

namespace cairn {
namespace {

const SaveId kOld = save_id_from("00000000000000000000000000000001").value();
const SaveId kNow = save_id_from("00000000000000000000000000000002").value();

// A directory that notes what is done to it.
class Publish : public testing::Test {
 protected:
  void put(const std::string& name) {
    const auto file = files_->create(name);
    file->write_at(0, std::as_bytes(std::span("data", 4)));
    file->commit();
  }

  // Publishes a checkpoint of one data file.
  void save(const SaveId& save, const WriteOptions& options, std::optional<int> rank = std::nullopt,
            std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max()) {
    const std::string data = data_file_name(rank.value_or(0), 0, save);
    Publication publication(*files_, save, options, rank);
    put(data);
    faults_->clear();
    Metadata metadata;
    metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
    metadata.storage_data.add({"step", std::nullopt, std::nullopt}, {data, 0, 4, {}, {}});
    publication.publish(metadata, {}, deadline);
  }

  // What publishing changed, in order.
  std::vector<std::string> changes() const {
    std::vector<std::string> all;
    for (const Faults::Call& call : faults_->trace()) {
      if (call.call == FileCall::kSync) all.emplace_back("sync");
      if (call.call == FileCall::kCommit) all.push_back("commit " + call.name);
      if (call.call == FileCall::kRemove) all.push_back("remove " + call.name);
    }
    return all;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const FileEntry& entry : files_->list()) all.push_back(entry.name);
    return all;
  }

  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<FileSystem> files_ = faulty_file_system(memory_file_system(), faults_);
};

using Strings = std::vector<std::string>;

TEST_F(Publish, EveryStepIsDurableBeforeTheNext) {
  save(kOld, {});
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kOld), "sync", "commit .metadata", "sync"}));
  save(kNow, {});
  const std::string data = data_file_name(0, 0, kOld);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kNow), "sync", "commit .metadata", "sync",
                                "remove " + manifest_name(kOld), "remove " + data, "sync"}));
}

TEST_F(Publish, NobodyWaitsForTheDiskWhoDidNotAskForIt) {
  const WriteOptions options = {.durable = false};
  save(kOld, options);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kOld), "commit .metadata"}));
  save(kNow, options);
  const std::string data = data_file_name(0, 0, kOld);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kNow), "commit .metadata",
                                "remove " + manifest_name(kOld), "remove " + data}));
}

TEST_F(Publish, WithoutChecksumsThereIsNoManifest) {
  save(kNow, {.checksums = false});
  EXPECT_EQ(changes(), (Strings{"commit .metadata", "sync"}));
}

TEST_F(Publish, AfterTheDeadlineTheOldCheckpointStays) {
  save(kOld, {});
  const auto past = std::chrono::steady_clock::now() - std::chrono::milliseconds(1);
  EXPECT_EQ(error_of([&] { save(kNow, {}, std::nullopt, past); }).code(), ErrorCode::kTimeout);
  EXPECT_TRUE(is_published_by(*files_, kOld, std::nullopt));
  EXPECT_FALSE(is_published_by(*files_, kNow, std::nullopt));
}

TEST_F(Publish, ACheckpointIsReplacedOnlyWhereItMayBe) {
  save(kOld, {.overwrite = false});
  EXPECT_EQ(error_of([&] { save(kNow, {.overwrite = false}); }).code(), ErrorCode::kConflict);
  EXPECT_TRUE(is_published_by(*files_, kOld, std::nullopt));
}

TEST_F(Publish, FilesThatTorchWroteGoWithTheCheckpointThatNamesThem) {
  put("__0_0.distcp");
  put("__1_0.distcp");  // nobody's
  Metadata torchs;
  torchs.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
  torchs.storage_data.add({"step", std::nullopt, std::nullopt}, {"__0_0.distcp", 0, 4, {}, {}});
  {
    WriteOptions options;
    options.checksums = false;
    Publication(*files_, kOld, options, std::nullopt)
        .publish(torchs, {}, std::chrono::steady_clock::time_point::max());
  }
  save(kNow, {});
  EXPECT_EQ(names(), (Strings{manifest_name(kNow), ".metadata", data_file_name(0, 0, kNow), "__1_0.distcp"}));
}

TEST_F(Publish, FilesWrittenAgainUnderTheirOldNamesStay) {
  put("__0_0.distcp");
  Metadata metadata;
  metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
  metadata.storage_data.add({"step", std::nullopt, std::nullopt}, {"__0_0.distcp", 0, 4, {}, {}});
  WriteOptions options;
  options.checksums = false;
  for (const SaveId& save : {kOld, kNow}) {
    Metadata mine = metadata;
    Publication(*files_, save, options, std::nullopt)
        .publish(mine, {}, std::chrono::steady_clock::time_point::max());
  }
  EXPECT_EQ(names(), (Strings{".metadata", "__0_0.distcp"}));
}

TEST_F(Publish, FilesOfSingleRanksOutliveASaveOfAll) {
  save(kOld, {}, 3);
  save(kNow, {});
  EXPECT_TRUE(files_->stat(data_file_name(3, 0, kOld)));
  EXPECT_TRUE(files_->stat(metadata_name(3)));
  EXPECT_TRUE(is_published_by(*files_, kOld, 3));
  EXPECT_TRUE(is_published_by(*files_, kNow, std::nullopt));
}

}  // namespace
}  // namespace cairn
