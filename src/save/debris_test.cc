#include "save/debris.h"

#include <gtest/gtest.h>

#include "checkpoint/dcp_names.h"
#include "storage/file_names.h"

namespace cairn {
namespace {

const SaveId kOld = save_id_from("00000000000000000000000000000001").value();
const SaveId kNow = save_id_from("00000000000000000000000000000002").value();

Metadata metadata_of(const SaveId& save, const std::vector<std::string>& files) {
  Metadata metadata;
  metadata.storage_meta = StorageMeta{};
  metadata.storage_meta->save_id = to_string(save);
  for (const std::string& file : files)
    metadata.storage_data.add({file, std::nullopt, std::nullopt}, {file, 0, 1, {}, {}});
  return metadata;
}

std::vector<std::string> debris_of(const std::vector<std::string>& names, const LiveFiles& live,
                                   std::optional<int> rank = std::nullopt) {
  std::vector<FileEntry> files;
  for (const std::string& name : names) files.push_back({name, 1});
  std::vector<std::string> found;
  for (const FileEntry& file : find_debris(files, live, rank)) found.push_back(file.name);
  return found;
}

TEST(Debris, FilesOfAnotherSaveAreDebris) {
  LiveFiles live;
  live.add(metadata_of(kNow, {data_file_name(0, 0, kNow)}));
  EXPECT_EQ(debris_of({data_file_name(0, 0, kNow), data_file_name(0, 0, kOld), manifest_name(kNow),
                       manifest_name(kOld), manifest_name(kOld, 3), ".metadata"},
                      live),
            (std::vector{data_file_name(0, 0, kOld), manifest_name(kOld), manifest_name(kOld, 3)}));
}

TEST(Debris, WithoutADescriptionEveryMarkedFileIsDebris) {
  const std::vector names = {data_file_name(0, 0, kNow), manifest_name(kNow)};
  EXPECT_EQ(debris_of(names, {}), names);
}

TEST(Debris, TorchsFilesAndStrangersStay) {
  EXPECT_TRUE(debris_of({"__0_0.distcp", ".metadata", "__1.metadata", "notes.txt", "model.safetensors",
                         ".cairn-manifest", "__0_0." + to_string(kOld) + ".distcp.bak"},
                        {})
                  .empty());
}

TEST(Debris, HalfWrittenFilesAreDebrisWhateverTheyWereGoingToBe) {
  LiveFiles live;
  live.add(metadata_of(kNow, {}));
  const std::vector names = {partial_name(data_file_name(0, 0, kNow)), partial_name(".metadata"),
                             partial_name("__0_0.distcp"), partial_name("model.safetensors")};
  EXPECT_EQ(debris_of(names, live), names);
}

TEST(Debris, AFileOfAnotherSaveThatIsReferredToStays) {
  LiveFiles live;
  live.add(metadata_of(kNow, {data_file_name(0, 0, kOld)}));
  EXPECT_EQ(debris_of({data_file_name(0, 0, kOld), data_file_name(1, 0, kOld)}, live),
            std::vector{data_file_name(1, 0, kOld)});
}

TEST(Debris, AFileOfTheLiveSaveStaysEvenIfItHoldsNothing) {
  LiveFiles live;
  live.add_save(kNow);
  EXPECT_TRUE(debris_of({data_file_name(7, 0, kNow)}, live).empty());
}

TEST(Debris, ALockIsNoDebris) { EXPECT_TRUE(debris_of({lock_name(), lock_name(4)}, {}).empty()); }

TEST(Debris, ARankCleansUpAfterItselfOnly) {
  const std::vector mine = {data_file_name(1, 0, kOld), manifest_name(kOld, 1),
                            partial_name(metadata_name(1))};
  std::vector all = mine;
  for (const std::string& name : {data_file_name(0, 0, kOld), manifest_name(kOld), partial_name(".metadata"),
                                  partial_name("notes.txt"), manifest_name(kOld, 11)})
    all.push_back(name);
  EXPECT_EQ(debris_of(all, {}, 1), mine);
}

}  // namespace
}  // namespace cairn
