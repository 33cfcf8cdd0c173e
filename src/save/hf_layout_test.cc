#include "save/hf_layout.h"

#include <gtest/gtest.h>

#include "testing/errors.h"

namespace cairn {
namespace {

WriteItem part(const char* fqn, Shape size, Box box, DType dtype = DType::kFloat32) {
  return WriteItem::shard(fqn, dtype, std::move(size), std::move(box));
}

TEST(HfLayout, RowsOfOneTensorBecomeOneEntry) {
  const WriteItems items = {part("w", {8, 4}, {{4, 0}, {2, 4}}), part("w", {8, 4}, {{2, 0}, {2, 4}})};
  const auto files = lay_out(items, {});
  ASSERT_EQ(files.size(), 1U);
  ASSERT_EQ(files[0].entries.size(), 1U);
  EXPECT_EQ(files[0].entries[0].box, (Box{{2, 0}, {4, 4}}));
  EXPECT_EQ(files[0].entries[0].items, (std::vector<std::size_t>{1, 0}));
  EXPECT_TRUE(files[0].entries[0].in_rows);
}

TEST(HfLayout, ColumnsAreWoven) {
  const WriteItems items = {part("w", {8, 4}, {{0, 0}, {8, 2}}), part("w", {8, 4}, {{0, 2}, {8, 2}})};
  const auto files = lay_out(items, {});
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].entries[0].box, Box::whole({8, 4}));
  EXPECT_FALSE(files[0].entries[0].in_rows);
}

TEST(HfLayout, PartsThatMakeNoBoxGetAFileEach) {
  const WriteItems items = {part("w", {8, 4}, {{0, 0}, {2, 4}}), part("w", {8, 4}, {{4, 0}, {2, 4}}),
                            part("v", {2}, {{0}, {2}})};
  const auto files = lay_out(items, {});
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].layer, 0);
  EXPECT_EQ(files[0].entries.size(), 2U);
  EXPECT_EQ(files[1].layer, 1);
  ASSERT_EQ(files[1].entries.size(), 1U);
  EXPECT_EQ(files[1].entries[0].box, (Box{{4, 0}, {2, 4}}));
}

TEST(HfLayout, WideElementsComeFirst) {
  const WriteItems items = {part("a", {3}, {{0}, {3}}, DType::kBool),
                            part("c", {1}, {{0}, {1}}, DType::kFloat64),
                            part("b", {1}, {{0}, {1}}, DType::kInt64)};
  const auto files = lay_out(items, {});
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].entries[0].fqn, "b");
  EXPECT_EQ(files[0].entries[1].fqn, "c");
  EXPECT_EQ(files[0].entries[2].fqn, "a");
}

TEST(HfLayout, ATensorWithoutAFileIsAnError) {
  const WriteItems items = {part("a", {3}, {{0}, {3}})};
  const Error error = error_of([&] { lay_out(items, {{"b", 1}}); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.tensor(), "a");
  EXPECT_EQ(error_of([&] { lay_out(items, {{"a", 0}}); }).code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
