#include "runs/records.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/parallel.h"
#include "storage/write_file.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

TEST(Records, AreReadBack) {
  StepRecord record = {.own = true, .abandoned = true};
  record.metrics = {{"loss", 0.1}, {"eval accuracy", -1e300}, {"", 3}, {"inf", INFINITY}};
  record.tags = {"best so far", "eval"};
  record.others = {"what a later version writes"};
  const std::string text = text_of(record);
  const StepRecord again = parse_record(text);
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(again.metrics, record.metrics);
  EXPECT_TRUE(again.own && again.abandoned);
  record.metrics["x"] = NAN;
  EXPECT_TRUE(std::isnan(parse_record(text_of(record)).metrics.at("x")));
  EXPECT_EQ(text_of(parse_record("")), "");
}

TEST(Records, WhatIsNoneIsToldAndBounded) {
  for (const std::string& text : {std::string("own"), std::string("metric x y\n"), std::string("metric 1\n"),
                                  std::string("metric  \n")})
    EXPECT_EQ(code_of([&] { parse_record(text); }), ErrorCode::kCorrupt) << text;
  EXPECT_EQ(code_of([&] { parse_record(std::string(2 << 20, '\n')); }), ErrorCode::kLimit);
  StepRecord bad;
  bad.tags = {"a\nown"};
  EXPECT_EQ(code_of([&] { text_of(bad); }), ErrorCode::kInvalidArgument);
  std::mt19937 random(4);
  for (int round = 0; round < 5000; ++round) {
    std::string text = "own\nmetric 2.5 loss\ntag x\n";
    for (int i = 0; i < 3; ++i) text[random() % text.size()] = static_cast<char>(random());
    try {
      const StepRecord record = parse_record(text);
      EXPECT_EQ(text_of(parse_record(text_of(record))), text_of(record));
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::kCorrupt || e.code() == ErrorCode::kInvalidArgument) << e.what();
    }
  }
}

TEST(Records, ChangesOfManyAreAllThere) {
  const auto notes = memory_file_system();
  for_each_in_parallel(16, 4, [&](std::size_t i, int) {
    change_record(*notes, 7, [&](StepRecord& record) { record.tags.insert(std::to_string(i)); });
  });
  EXPECT_EQ(read_record(*notes, 7)->tags.size(), 16U);
  EXPECT_FALSE(read_record(*notes, 8).has_value());
  remove_record(*notes, 7);
  remove_record(*notes, 7);
  EXPECT_TRUE(notes->list().empty());
}

TEST(Records, LieInFiles) {
  const TestFolder folder;
  const auto notes = posix_file_system(folder.path());
  change_record(*notes, 1, [](StepRecord& record) { record.own = true; });
  change_record(*notes, 1, [](StepRecord& record) { record.metrics["loss"] = 2.5; });
  EXPECT_EQ(text_of(*read_record(*notes, 1)), "own\nmetric 2.5 loss\n");
  write_file(*notes, "step-2", "metric\n", {});
  EXPECT_EQ(read_record(*notes, 2)->others.size(), 1U);
  write_file(*notes, "step-3", "metric 1\n", {});
  const Error e = error_of([&] { read_record(*notes, 3); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "step-3")) << e.what();
}

}  // namespace
}  // namespace cairn
