// Replacing objects where one can only create them exclusively: races, sleepers and deaths.
#include "storage/s3/generations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/bytes.h"
#include "base/source.h"
#include "storage/s3/file_system.h"
#include "testing/errors.h"
#include "testing/s3_bucket.h"

namespace cairn::s3 {
namespace {

class S3Generations : public testing::Test {
 protected:
  Client& client() { return bucket_->client(); }

  void create(const std::string& text) { ASSERT_TRUE(create_chained(client(), "N", as_bytes(text))); }
  void replace(const std::string& text, const std::optional<std::string>& expected = std::nullopt) {
    replace_chained(client(), "N", as_bytes(text), expected);
  }
  std::string version() { return newest(client(), "N").value().version(); }
  // As cairn reads it, and as everybody else does.
  std::string ours() { return read_all(*bucket_folder(bucket_, "")->open("N")); }
  std::string theirs() { return server_.objects().at("N").bytes; }
  std::vector<std::string> records() {
    std::vector<std::string> found;
    for (const std::string& key : server_.keys())
      if (parse_record(key)) found.push_back(key);
    return found;
  }

  // Does that before the first request of this kind, of which the key contains these words, is carried out.
  void before_first(const std::string& kind, const std::string& words, std::function<void()> what) {
    auto once = std::make_shared<std::atomic<bool>>(false);
    server_.set_fault([=](const S3Request& request) {
      if (request.kind == kind && request.key.find(words) != std::string::npos && !once->exchange(true))
        what();
      return S3Fault();
    });
  }
  // Nothing of this kind is done any more.
  void refuse(const std::string& kind) {
    server_.set_fault([=](const S3Request& request) {
      return request.kind == kind ? S3Fault{.status = 403, .code = "AccessDenied"} : S3Fault();
    });
  }
  // Another process's way to the same bucket.
  Client& other() { return other_->client(); }

  S3Server server_;
  std::shared_ptr<Bucket> bucket_ = bucket_at(server_), other_ = bucket_at(server_);
};

TEST_F(S3Generations, AReplacementIsThereForUsAndForOthersAndOneRecordStays) {
  create("first");
  EXPECT_TRUE(records().empty());
  for (const char* text : {"second", "third", "fourth"}) {
    const std::string before = version();
    replace(text, before);
    EXPECT_NE(version(), before);
    EXPECT_EQ(ours(), text);
    EXPECT_EQ(theirs(), text);
    EXPECT_EQ(records().size(), 1U);
  }
  EXPECT_FALSE(create_chained(client(), "N", as_bytes("another")));
}

TEST_F(S3Generations, OfManyWhoReplaceOneGenerationOneGetsThrough) {
  create("first");
  for (int round = 0; round < 20; ++round) {
    const std::string before = version();
    std::atomic<int> won = 0;
    std::string winner;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::string text = std::to_string(round) + "," + std::to_string(t);
        const auto way = t % 2 == 0 ? bucket_ : other_;
        try {
          replace_chained(way->client(), "N", as_bytes(text), before);
          ++won;
          winner = text;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::kConflict) << e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(won.load(), 1);
    ASSERT_EQ(ours(), winner);
    ASSERT_EQ(theirs(), winner);
    ASSERT_EQ(records().size(), 1U);
  }
}

TEST_F(S3Generations, ReplacingWhateverIsThereGetsThroughInTheEnd) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) replace(std::to_string(t));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ours(), theirs());
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(S3Generations, WhoSleepsBeforeItsRecordFindsThatOthersWentOn) {
  create("first");
  before_first("PutObject", ".cairn-commit.", [&] {
    for (const char* text : {"second", "third", "fourth"})
      replace_chained(other(), "N", as_bytes(text), std::nullopt);
  });
  EXPECT_EQ(code_of([&] { replace("of the sleeper", version()); }), ErrorCode::kConflict);
  EXPECT_EQ(ours(), "fourth");
  EXPECT_EQ(theirs(), "fourth");
  ASSERT_EQ(records().size(), 1U);
  EXPECT_EQ(server_.objects().at(records()[0]).bytes, "fourth");
}

TEST_F(S3Generations, WhoSleepsBeforeItsRecordWhileAllIsRemovedLeavesNothing) {
  create("first");
  before_first("PutObject", ".cairn-commit.", [&] { remove_chained(other(), "N"); });
  EXPECT_EQ(code_of([&] { replace("of the sleeper", version()); }), ErrorCode::kConflict);
  EXPECT_TRUE(server_.keys().empty());
}

TEST_F(S3Generations, WhoSleepsBeforeTheCopyCannotBringBackWhatWasReplaced) {
  create("first");
  before_first("CopyObject", "N", [&] {
    for (const char* text : {"third", "fourth"}) replace_chained(other(), "N", as_bytes(text), std::nullopt);
  });
  replace("second", version());
  EXPECT_EQ(ours(), "fourth");
  EXPECT_EQ(theirs(), "fourth");
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(S3Generations, WhoSleepsBeforeTheCopyWhileAllIsRemovedDoesNotBringItBack) {
  create("first");
  before_first("CopyObject", "N", [&] { remove_chained(other(), "N"); });
  replace("second", version());
  EXPECT_TRUE(server_.keys().empty());
}

TEST_F(S3Generations, WhatADeadWriterCommittedIsReadAndMendedByTheNextReader) {
  create("first");
  const std::string before = version();
  refuse("CopyObject");
  EXPECT_EQ(code_of([&] { replace("second", before); }), ErrorCode::kIo);
  EXPECT_EQ(theirs(), "first");
  EXPECT_EQ(ours(), "second") << "who may not mend it can read it";
  EXPECT_EQ(theirs(), "first");
  EXPECT_EQ(code_of([&] { replace("third", before); }), ErrorCode::kConflict);
  server_.set_fault({});
  EXPECT_EQ(ours(), "second");
  EXPECT_EQ(theirs(), "second");
}

TEST_F(S3Generations, OlderRecordsOfADeadWriterAreRemovedByTheNextReader) {
  create("first");
  replace("second");
  refuse("DeleteObject");  // it dies right before it
  EXPECT_ANY_THROW(replace("third"));
  EXPECT_EQ(theirs(), "third");
  EXPECT_EQ(records().size(), 2U);
  EXPECT_EQ(ours(), "third");
  EXPECT_EQ(records().size(), 2U) << "who may not remove them can read";
  server_.set_fault({});
  EXPECT_EQ(ours(), "third");
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(S3Generations, WhatADeadWriterCommittedIsReplacedLikeAnything) {
  create("first");
  refuse("CopyObject");
  EXPECT_EQ(code_of([&] { replace("second"); }), ErrorCode::kIo);
  server_.set_fault({});
  replace("third", version());
  EXPECT_EQ(theirs(), "third");
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(S3Generations, ALostAnswerIsSettledByLooking) {
  create("first");
  for (const bool carried_out : {true, false}) {
    auto left = std::make_shared<std::atomic<int>>(1);
    server_.set_fault([=](const S3Request& request) {
      const bool it = request.kind == "PutObject" && left->fetch_sub(1) > 0;
      return it ? S3Fault{.drop = true, .carried_out = carried_out} : S3Fault();
    });
    const std::string text = carried_out ? "second" : "third";
    replace(text, version());
    EXPECT_EQ(ours(), text);
    EXPECT_EQ(theirs(), text);
    EXPECT_EQ(records().size(), 1U);
  }
}

TEST_F(S3Generations, WhatIsDeliveredTwiceCountsOnce) {
  server_.set_fault([](const S3Request& request) { return S3Fault{.twice = request.kind == "PutObject"}; });
  create("first");
  replace("second", version());
  EXPECT_EQ(ours(), "second");
  EXPECT_EQ(theirs(), "second");
}

TEST_F(S3Generations, AnObjectOfSomebodyElsesIsReplacedOnceByThoseWhoSawIt) {
  server_.put("N", "foreign");
  const std::string seen = version();
  EXPECT_EQ(version(), seen);
  refuse("PutObject");  // dies after it gave it a chain
  EXPECT_EQ(code_of([&] { replace("of the dead", seen); }), ErrorCode::kIo);
  server_.set_fault({});
  EXPECT_EQ(theirs(), "foreign");
  EXPECT_EQ(version(), seen);
  replace("second", seen);
  EXPECT_EQ(code_of([&] { replace("third", seen); }), ErrorCode::kConflict);
  EXPECT_EQ(ours(), "second");
  EXPECT_EQ(theirs(), "second");
}

TEST_F(S3Generations, WhatSomebodyElseWritesOverItIsWhatIsThere) {
  create("first");
  replace("second");
  server_.put("N", "foreign");
  EXPECT_EQ(ours(), "foreign");
  replace("third", version());
  EXPECT_EQ(ours(), "third");
  EXPECT_EQ(theirs(), "third");
}

TEST_F(S3Generations, OneThatIsRemovedAndMadeAgainIsAnother) {
  create("first");
  replace("second");
  const std::string before = version();
  remove_chained(client(), "N");
  EXPECT_TRUE(server_.keys().empty());
  EXPECT_EQ(code_of([&] { remove_chained(client(), "N"); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { replace("third", before); }), ErrorCode::kConflict);
  create("first");
  EXPECT_EQ(code_of([&] { replace("third", before); }), ErrorCode::kConflict);
  EXPECT_EQ(ours(), "first");
}

TEST_F(S3Generations, AListShowsTheNewestAndWhatIsLeftOfOthersAsPartial) {
  create("first");
  refuse("CopyObject");
  EXPECT_EQ(code_of([&] { replace("the second"); }), ErrorCode::kIo);
  server_.set_fault({});
  const auto files = bucket_folder(bucket_, "");
  EXPECT_EQ(files->list(), (std::vector<FileEntry>{{"N", 10}}));
  EXPECT_EQ(files->stat("N"), (FileEntry{"N", 10}));
  server_.put("M.cairn-commit.c.00000000000000000003", "of nothing");
  const auto all = files->list();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(is_partial(all[0].name)) << all[0].name;
  EXPECT_EQ(files->stat(all[0].name), all[0]);
  files->remove(all[0].name);
  EXPECT_EQ(files->list().size(), 1U);
  EXPECT_EQ(code_of([&] { files->remove(all[0].name); }), ErrorCode::kNotFound);
}

TEST(S3Records, ANameIsARecordOrNone) {
  const auto record = parse_record("run/.metadata.cairn-commit.e12-3.00000000000000000042");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->of, "run/.metadata");
  EXPECT_EQ(record->chain, "e12-3");
  EXPECT_EQ(record->number, 42U);
  for (const char* name : {"a.cairn-commit.c.42", "a.cairn-commit..00000000000000000042", "a", "",
                           ".cairn-commit.c.00000000000000000042", "a.cairn-commit.c.0000000000000000004x",
                           "a.cairn-commit.c/d.00000000000000000042"})
    EXPECT_FALSE(parse_record(name)) << name;
}

}  // namespace
}  // namespace cairn::s3
