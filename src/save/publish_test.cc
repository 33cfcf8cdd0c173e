#include "save/publish.h"

#include <gtest/gtest.h>

#include "checkpoint/dcp_names.h"
#include "testing/crippled.h"
#include "testing/errors.h"
#include "testing/faulty.h"

namespace cairn {
namespace {

const SaveId kOldSave = save_id_from("00000000000000000000000000000001").value();
const SaveId kOther = save_id_from("00000000000000000000000000000003").value();
const SaveId kNowSave = save_id_from("00000000000000000000000000000002").value();

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
    Publication publication(*files_, save, options, rank, ranks_);
    put(data);
    faults_->clear();
    Metadata metadata;
    metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
    metadata.storage_data.add({"step", std::nullopt, std::nullopt}, {data, 0, 4, {}, {}});
    publication.publish(metadata, {}, deadline, warnings_);
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

  int ranks_ = 4;  // that save without collectives
  std::vector<std::string> warnings_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<FileSystem> files_ = faulty_file_system(memory_file_system(), faults_);
};

using Strings = std::vector<std::string>;

TEST_F(Publish, EveryStepIsDurableBeforeTheNext) {
  save(kOldSave, {});
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kOldSave), "sync", "commit .metadata", "sync"}));
  save(kNowSave, {});
  const std::string data = data_file_name(0, 0, kOldSave);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kNowSave), "sync", "commit .metadata", "sync",
                                "remove " + manifest_name(kOldSave), "remove " + data, "sync"}));
}

TEST_F(Publish, NobodyWaitsForTheDiskWhoDidNotAskForIt) {
  const WriteOptions options = {.durable = false};
  save(kOldSave, options);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kOldSave), "commit .metadata"}));
  save(kNowSave, options);
  const std::string data = data_file_name(0, 0, kOldSave);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kNowSave), "commit .metadata",
                                "remove " + manifest_name(kOldSave), "remove " + data}));
}

TEST_F(Publish, WithoutChecksumsThereIsNoManifest) {
  save(kNowSave, {.checksums = false});
  EXPECT_EQ(changes(), (Strings{"commit .metadata", "sync"}));
}

TEST_F(Publish, AfterTheDeadlineTheOldCheckpointStays) {
  save(kOldSave, {});
  const auto past = std::chrono::steady_clock::now() - std::chrono::milliseconds(1);
  EXPECT_EQ(error_of([&] { save(kNowSave, {}, std::nullopt, past); }).code(), ErrorCode::kTimeout);
  EXPECT_TRUE(is_published_by(*files_, kOldSave, std::nullopt));
  EXPECT_FALSE(is_published_by(*files_, kNowSave, std::nullopt));
}

TEST_F(Publish, ACheckpointIsReplacedOnlyWhereItMayBe) {
  save(kOldSave, {.overwrite = false});
  EXPECT_EQ(error_of([&] { save(kNowSave, {.overwrite = false}); }).code(), ErrorCode::kConflict);
  EXPECT_TRUE(is_published_by(*files_, kOldSave, std::nullopt));
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
    Publication(*files_, kOldSave, options, std::nullopt)
        .publish(torchs, {}, std::chrono::steady_clock::time_point::max(), warnings_);
  }
  save(kNowSave, {});
  EXPECT_EQ(names(),
            (Strings{manifest_name(kNowSave), ".metadata", data_file_name(0, 0, kNowSave), "__1_0.distcp"}));
}

TEST_F(Publish, FilesWrittenAgainUnderTheirOldNamesStay) {
  put("__0_0.distcp");
  Metadata metadata;
  metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
  metadata.storage_data.add({"step", std::nullopt, std::nullopt}, {"__0_0.distcp", 0, 4, {}, {}});
  WriteOptions options;
  options.checksums = false;
  for (const SaveId& save : {kOldSave, kNowSave}) {
    Metadata mine = metadata;
    Publication(*files_, save, options, std::nullopt)
        .publish(mine, {}, std::chrono::steady_clock::time_point::max(), warnings_);
  }
  EXPECT_EQ(names(), (Strings{".metadata", "__0_0.distcp"}));
}

TEST_F(Publish, ASaveOfAllTakesThePlaceOfThoseOfSingleRanks) {
  save(kOldSave, {}, 3);
  save(kNowSave, {});
  const std::string data = data_file_name(3, 0, kOldSave);
  EXPECT_EQ(changes(), (Strings{"commit " + manifest_name(kNowSave), "sync", "commit .metadata", "sync",
                                "remove " + metadata_name(3), "sync", "remove " + manifest_name(kOldSave, 3),
                                "remove " + data, "sync"}));
  EXPECT_EQ(names(), (Strings{manifest_name(kNowSave), ".metadata", data_file_name(0, 0, kNowSave)}));
}

TEST_F(Publish, FilesOfARankThatIsSavingOutliveASaveOfAll) {
  save(kOldSave, {}, 3);
  const Publication saving(*files_, kOther, {}, 3, ranks_);
  save(kNowSave, {});
  EXPECT_TRUE(is_published_by(*files_, kOldSave, 3));
  EXPECT_TRUE(files_->stat(data_file_name(3, 0, kOldSave)));
}

TEST_F(Publish, ACheckpointOfAllOutlivesASaveOfOneRank) {
  save(kOldSave, {});
  save(kNowSave, {}, 0);
  EXPECT_TRUE(files_->stat(data_file_name(0, 0, kOldSave)));
  EXPECT_TRUE(files_->stat(manifest_name(kOldSave)));
}

TEST_F(Publish, ACheckpointOfAllIsRetiredMetadataFirst) {
  save(kOldSave, {});
  ranks_ = 1;
  save(kNowSave, {}, 0);
  EXPECT_EQ(changes(),
            (Strings{"commit " + manifest_name(kNowSave, 0), "sync", "commit " + metadata_name(0), "sync",
                     "sync", "remove .metadata", "sync", "remove " + manifest_name(kOldSave),
                     "remove " + data_file_name(0, 0, kOldSave), "sync"}));
  EXPECT_TRUE(is_published_by(*files_, kNowSave, 0));
}

TEST_F(Publish, ACheckpointOfAllThatCameLaterIsNotRetired) {
  ranks_ = 2;
  save(kOldSave, {});
  save(kNowSave, {}, 0);
  save(kOther, {});
  save(kNowSave, {}, 1);
  EXPECT_TRUE(is_published_by(*files_, kOther, std::nullopt));
  EXPECT_TRUE(files_->stat(data_file_name(0, 0, kOther)));
}

TEST_F(Publish, NeitherWayOfSavingReplacesTheOtherUnasked) {
  save(kOldSave, {});
  EXPECT_EQ(error_of([&] { save(kNowSave, {.overwrite = false}, 0); }).code(), ErrorCode::kConflict);
  files_->remove(".metadata");
  save(kOldSave, {.overwrite = false}, 1);
  EXPECT_EQ(error_of([&] { save(kNowSave, {.overwrite = false}); }).code(), ErrorCode::kConflict);
}

// Two jobs that no lock keeps apart, each with a data file of its own.
class TwoJobs : public Publish, public testing::WithParamInterface<Lacks> {
 protected:
  void put_data(const SaveId& save) { put(data_file_name(0, 0, save)); }

  void publish(Publication& publication, const SaveId& save) {
    Metadata metadata;
    metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
    metadata.storage_data.add({"step", std::nullopt, std::nullopt},
                              {data_file_name(0, 0, save), 0, 4, {}, {}});
    publication.publish(metadata, {}, std::chrono::steady_clock::time_point::max(), warnings_);
  }

  CrippledFileSystem shared_{*files_, GetParam()};
};

// What a file system has to tell two jobs apart, the best first.
INSTANTIATE_TEST_SUITE_P(
    Each, TwoJobs,
    testing::Values(Lacks{.locks = true}, Lacks{.locks = true, .replace_if_unchanged = true},
                    Lacks{.locks = true, .replace_if_unchanged = true, .exclusive_create = true}),
    [](const auto& lacks) {
      return lacks.param.exclusive_create       ? "ByLooking"
             : lacks.param.replace_if_unchanged ? "ByClaim"
                                                : "InOneStep";
    });

TEST_P(TwoJobs, OnlyOneOfThemPublishesANewCheckpoint) {
  Publication one(shared_, kOldSave, {}, std::nullopt), other(shared_, kNowSave, {}, std::nullopt);
  put_data(kOldSave);
  put_data(kNowSave);
  publish(one, kOldSave);
  const Error e = error_of([&] { publish(other, kNowSave); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(e, "another save has published this checkpoint meanwhile")) << e.what();
  EXPECT_TRUE(is_published_by(*files_, kOldSave, std::nullopt));
  EXPECT_TRUE(files_->stat(data_file_name(0, 0, kOldSave)));
}

TEST_P(TwoJobs, OnlyOneOfThemReplacesAnOldCheckpoint) {
  save(kOther, {});
  Publication one(shared_, kOldSave, {}, std::nullopt), other(shared_, kNowSave, {}, std::nullopt);
  put_data(kOldSave);
  put_data(kNowSave);
  publish(one, kOldSave);
  EXPECT_FALSE(files_->stat(data_file_name(0, 0, kOther)));
  EXPECT_FALSE(files_->stat(manifest_name(kOther)));
  EXPECT_TRUE(files_->stat(data_file_name(0, 0, kNowSave))) << "of a save that may be under way";
  const Error e = error_of([&] { publish(other, kNowSave); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(e, "another save has published this checkpoint meanwhile")) << e.what();
  EXPECT_TRUE(is_published_by(*files_, kOldSave, std::nullopt));
  EXPECT_TRUE(files_->stat(data_file_name(0, 0, kOldSave)));
}

TEST_P(TwoJobs, TheReportSaysWhereNothingKeepsThemApart) {
  const std::size_t warned = GetParam().exclusive_create ? 1 : 0;
  for (const SaveId& id : {kOldSave, kNowSave}) {
    warnings_.clear();
    Publication publication(shared_, id, {}, std::nullopt);
    put_data(id);
    publish(publication, id);
    EXPECT_EQ(warnings_.size(), warned);
  }
}

TEST_F(Publish, WhereNobodyIsKeptOutAFileThatWasTakenAwayFailsTheSave) {
  save(kOldSave, {});
  CrippledFileSystem shared(*files_, {.locks = true});
  Publication publication(shared, kNowSave, {}, std::nullopt);
  Metadata metadata;
  metadata.storage_data.add({"step", std::nullopt, std::nullopt},
                            {data_file_name(0, 0, kNowSave), 0, 4, {}, {}});
  const Error e = error_of(
      [&] { publication.publish(metadata, {}, std::chrono::steady_clock::time_point::max(), warnings_); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(e, "removed before the save was done")) << e.what();
  EXPECT_TRUE(is_published_by(*files_, kOldSave, std::nullopt));
}

TEST_F(Publish, OldFilesGoAlsoWhereNothingCanBeListed) {
  save(kOldSave, {});
  CrippledFileSystem shared(*files_, {.locks = true, .atomic_rename = true, .listing = true});
  Publication publication(shared, kNowSave, {}, std::nullopt);
  put(data_file_name(0, 0, kNowSave));
  Metadata metadata;
  metadata.storage_data.add({"step", std::nullopt, std::nullopt},
                            {data_file_name(0, 0, kNowSave), 0, 4, {}, {}});
  publication.publish(metadata, {}, std::chrono::steady_clock::time_point::max(), warnings_);
  EXPECT_EQ(names(), (Strings{manifest_name(kNowSave), ".metadata", data_file_name(0, 0, kNowSave)}));
}

// A name that a dead save took, and put nothing behind, on a file system where that takes two steps.
TEST_F(Publish, AnEmptyMetadataIsNoCheckpointAndInNobodysWay) {
  files_->create(".metadata")->commit();
  save(kNowSave, {.overwrite = false});
  EXPECT_TRUE(is_published_by(*files_, kNowSave, std::nullopt));
}

}  // namespace
}  // namespace cairn
