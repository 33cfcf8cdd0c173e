#include <gtest/gtest.h>

#include <limits>

#include "cairn/plan.h"
#include "plan/item_tables.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace write_items_test {

TEST(WriteItems, GiveBackWhatWasPutIn) {
  WriteItem shard = rows_of("model.w", 2, 4, 8);
  shard.index.index = 7;
  shard.tensor_data->properties.requires_grad = true;
  shard.tensor_data->properties.extra = {Value(5)};
  WriteItem object = WriteItem::bytes("step");
  object.bytes_io_data = BytesIOWriteData{123};
  const std::vector<WriteItem> items = {WriteItem::tensor("a", DType::kBFloat16, {}), shard, object,
                                        WriteItem::tensor("e", DType::kInt8, {0, 3, 1, 2, 5})};
  const WriteItems packed(items);
  EXPECT_EQ(packed.to_vector(), items);
  EXPECT_EQ(packed.fqn(1), "model.w");
  EXPECT_EQ(packed.type(2), WriteItemType::kByteIO);
}

TEST(WriteItems, AreEqualByMeaningWhateverTheirTables) {
  const WriteItems a = {rows_of("w", 0, 2, 4), WriteItem::bytes("x")};
  WriteItems b = {WriteItem::bytes("x"), rows_of("w", 0, 2, 4)};
  EXPECT_FALSE(a == b);
  b.set(0, rows_of("w", 0, 2, 4));
  b.set(1, WriteItem::bytes("x"));
  EXPECT_TRUE(a == b);
  WriteItem other = rows_of("w", 0, 2, 4);
  other.tensor_data->properties.dtype = DType::kFloat16;
  b.set(0, other);
  EXPECT_FALSE(a == b);
}

TEST(WriteItems, CopiesDoNotSeeEachOthersChanges) {
  WriteItems a = {WriteItem::bytes("x")};
  const WriteItems b = a;
  a.push_back(WriteItem::bytes("y"));
  EXPECT_EQ(b.size(), 1u);
  EXPECT_EQ(b.rows().tables->names.size(), 1u);
}

TEST(WriteItems, RefuseItemsThatCannotBe) {
  WriteItem no_data = rows_of("w", 0, 2, 4);
  no_data.tensor_data.reset();
  WriteItem object = WriteItem::bytes("o");
  object.tensor_data = rows_of("w", 0, 2, 4).tensor_data;
  WriteItem far = WriteItem::bytes("o");
  far.index.index = std::int64_t{1} << 32;
  WriteItem both = rows_of("w", 0, 2, 4);
  both.bytes_io_data = BytesIOWriteData{1};
  WriteItem unknown = WriteItem::bytes("o");
  unknown.type = static_cast<WriteItemType>(9);
  for (const WriteItem& item : {no_data, object, far, both, unknown}) {
    WriteItems items;
    const Error e = error_of([&] { items.push_back(item); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(e.tensor(), item.index.fqn);
  }
}

TEST(WriteItems, RefuseANameThatNoCheckpointCanHold) {
  WriteItems items;
  items.push_back(WriteItem::bytes(std::string(65536, 'n')));
  const Error e = error_of([&] { items.push_back(WriteItem::bytes(std::string(65537, 'n'))); });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
  EXPECT_LT(e.tensor().size(), 200U);
}

TEST(WriteItem, CountsTheGlobalTensorAsDcpDoesAndTheChunkAsItIs) {
  const WriteItem item = rows_of("w", 0, 2, 8);
  EXPECT_EQ(item.tensor_storage_size(), 8 * 4 * 4);
  EXPECT_EQ(item.chunk_storage_size(), 2 * 4 * 4);
  EXPECT_EQ(WriteItem::bytes("x").tensor_storage_size(), std::nullopt);
  const WriteItem huge = WriteItem::tensor("w", DType::kFloat64, {std::int64_t{1} << 61});
  EXPECT_EQ(error_of([&] { (void)huge.tensor_storage_size(); }).code(), ErrorCode::kLimit);
}

TEST(JoinTables, GivesEqualThingsEqualNumbersAcrossRanks) {
  std::vector<SavePlan> all = {plan_of({WriteItem::bytes("x"), rows_of("w", 0, 2, 4)}),
                               plan_of({rows_of("w", 2, 4, 4), WriteItem::bytes("x")}), SavePlan{}};
  const std::vector<SavePlan> before = all;
  join_tables(all);
  EXPECT_EQ(all, before);
  EXPECT_EQ(all[0].items.rows().tables, all[2].items.rows().tables);
  EXPECT_EQ(all[0].items.rows().rows[0].key(), all[1].items.rows().rows[1].key());
  EXPECT_NE(all[0].items.rows().rows[1].key(), all[1].items.rows().rows[0].key());
}

}  // namespace write_items_test
}  // namespace cairn
