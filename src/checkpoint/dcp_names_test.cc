#include "checkpoint/dcp_names.h"

#include <gtest/gtest.h>

#include "storage/file_names.h"

namespace cairn {
namespace {

using Kind = DcpName::Kind;

SaveId some_id() { return save_id_from("00112233445566778899aabbccddeeff").value(); }

bool is(std::string_view name, Kind kind, std::optional<int> rank, std::optional<SaveId> save) {
  const std::optional<DcpName> parsed = parse_dcp_name(name);
  return parsed && parsed->kind == kind && parsed->rank == rank && parsed->save == save;
}

TEST(DcpNames, SaveIdsReadBackAsWritten) {
  const SaveId id = random_save_id();
  EXPECT_EQ(save_id_from(to_string(id)), id);
  EXPECT_NE(random_save_id(), id);
}

TEST(DcpNames, OnlyThirtyTwoSmallHexDigitsAreASaveId) {
  EXPECT_EQ(save_id_from(""), std::nullopt);
  EXPECT_EQ(save_id_from("00112233445566778899aabbccddeef"), std::nullopt);
  EXPECT_EQ(save_id_from("00112233445566778899aabbccddeeff0"), std::nullopt);
  EXPECT_EQ(save_id_from("00112233445566778899aabbccddeefg"), std::nullopt);
  EXPECT_EQ(save_id_from("00112233445566778899AABBCCDDEEFF"), std::nullopt);
}

TEST(DcpNames, NamesReadBackAsWritten) {
  EXPECT_TRUE(is(data_file_name(0, 0, some_id()), Kind::kData, 0, some_id()));
  EXPECT_TRUE(is(data_file_name(16383, 7, some_id()), Kind::kData, 16383, some_id()));
  EXPECT_TRUE(is(manifest_name(some_id()), Kind::kManifest, std::nullopt, some_id()));
  EXPECT_TRUE(is(manifest_name(some_id(), 3), Kind::kManifest, 3, some_id()));
  EXPECT_TRUE(is(metadata_name(), Kind::kMetadata, std::nullopt, std::nullopt));
  EXPECT_TRUE(is(metadata_name(3), Kind::kMetadata, 3, std::nullopt));
  EXPECT_TRUE(is(lock_name(), Kind::kLock, std::nullopt, std::nullopt));
  EXPECT_TRUE(is(lock_name(3), Kind::kLock, 3, std::nullopt));
}

TEST(DcpNames, TorchsOwnDataFilesHaveNoSaveId) {
  EXPECT_TRUE(is("__0_0.distcp", Kind::kData, 0, std::nullopt));
  EXPECT_TRUE(is("__12_345.distcp", Kind::kData, 12, std::nullopt));
}

TEST(DcpNames, APartialFileIsWhatItWasGoingToBe) {
  EXPECT_TRUE(is(partial_name(data_file_name(2, 1, some_id())), Kind::kData, 2, some_id()));
  EXPECT_TRUE(is(partial_name(manifest_name(some_id(), 1)), Kind::kManifest, 1, some_id()));
  EXPECT_TRUE(is(partial_name(metadata_name()), Kind::kMetadata, std::nullopt, std::nullopt));
  EXPECT_TRUE(is(partial_name("__0_0.distcp"), Kind::kData, 0, std::nullopt));
  EXPECT_FALSE(parse_dcp_name(partial_name("model.safetensors")));
  EXPECT_FALSE(parse_dcp_name(partial_name(partial_name(".metadata"))));
}

TEST(DcpNames, OtherNamesAreNobodys) {
  const std::string id = to_string(some_id());
  for (const std::string& name : {
           std::string(),
           std::string("__"),
           std::string("_"),
           std::string("__0"),
           std::string("__0_"),
           std::string("__0_0"),
           std::string("__0_0.distcp2"),
           std::string("__0_0..distcp"),
           std::string("__0_0.abc.distcp"),
           std::string("__-1_0.distcp"),
           std::string("__+1_0.distcp"),
           std::string("__00_0.distcp"),
           std::string("__0_00.distcp"),
           std::string("__0_-1.distcp"),
           std::string("__99999999999_0.distcp"),
           std::string("__0_99999999999.distcp"),
           std::string("__0x1_0.distcp"),
           std::string(" __0_0.distcp"),
           std::string("__0_0.distcp "),
           std::string("a/__0_0.distcp"),
           std::string("../.metadata"),
           std::string("metadata"),
           std::string(".metadata.bak"),
           std::string("__a.metadata"),
           std::string("__1.metadata2"),
           std::string(".cairn-manifest"),
           std::string(".cairn-manifest."),
           std::string(".cairn-manifest.0011"),
           ".cairn-manifest." + id + "0",
           "x.cairn-manifest." + id,
           ".cairn-manifest." + id + ".bak",
           "__0_0." + id + id + ".distcp",
           "__0_0." + id + "..distcp",
           "__0_0" + id + ".distcp",
           "__0_0." + id,
           std::string(".cairn-lock2"),
           std::string("x.cairn-lock"),
           std::string(".cairn-lock.x"),
           std::string("__0_0\0.distcp", 13),
           std::string(".metadata\0", 10),
       }) {
    EXPECT_FALSE(parse_dcp_name(name)) << name;
  }
}

}  // namespace
}  // namespace cairn
