// Objects in the making: where they are cut, what is sent, what stays behind.
#include "storage/s3/writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "base/bytes.h"
#include "base/source.h"
#include "storage/s3/file_system.h"
#include "storage/s3/parts.h"
#include "testing/errors.h"
#include "testing/s3_bucket.h"

namespace cairn::s3 {
namespace {

constexpr std::uint64_t kPart = kLeastPart;

std::string noise(std::size_t size) {
  std::mt19937_64 random(size);
  std::string text(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) store(text.data() + i, random());
  return text;
}

class S3Writer : public testing::Test {
 protected:
  static CreateOptions data(std::uint64_t size) { return {.size = size, .in_place = true}; }

  std::string stored(const std::string& key = "a") { return server_.objects().at(key).bytes; }
  bool is_stored(const std::string& text, const std::string& key = "a") { return stored(key) == text; }

  S3Server server_{{.md5 = false}};
  std::shared_ptr<Bucket> bucket_ = bucket_at(server_);
  std::unique_ptr<FileSystem> files_ = bucket_folder(bucket_, "");
};

TEST(S3Parts, AreOfOneSizeWhereTheSizeIsKnownAndAlwaysFewEnough) {
  for (const std::uint64_t size : {kPart + 1, 3 * kPart, std::uint64_t{3} << 30, (std::uint64_t{1} << 40) + 7,
                                   std::uint64_t{5} << 40, std::uint64_t{48} << 40}) {
    const Cuts cuts(size);
    EXPECT_EQ(cuts.at(0).number, 1);
    EXPECT_LE(cuts.at(size - 1).number, kMostParts) << size;
    const std::uint64_t part = cuts.at(0).end;
    EXPECT_GE(part, kPart);
    EXPECT_EQ(part % kPart, 0U);
    EXPECT_EQ(cuts.at(part - 1).number, 1);
    EXPECT_EQ(cuts.at(part).number, 2);
    if (size < std::uint64_t{1} << 39) {
      EXPECT_LE(part, std::uint64_t{64} << 20);
    }
  }
}

TEST(S3Parts, GrowWhereTheSizeIsNotKnown) {
  const Cuts cuts(0);
  std::uint64_t end = 0;
  for (int number = 1; number <= kMostParts; ++number) {
    const PartPlace place = cuts.at(end);
    ASSERT_EQ(place.number, number);
    ASSERT_EQ(place.begin, end);
    ASSERT_EQ(cuts.at(place.end - 1).number, number);
    end = place.end;
  }
  EXPECT_GT(end, std::uint64_t{5} << 40);
}

TEST(S3Parts, KnowWhatOfThemIsThere) {
  Covered covered;
  covered.add(4, 6);
  covered.add(8, 10);
  EXPECT_FALSE(covered.all(4, 10));
  covered.add(0, 4);
  covered.add(5, 9);
  EXPECT_TRUE(covered.all(0, 10));
  EXPECT_FALSE(covered.all(0, 11));
}

TEST_F(S3Writer, ASmallFileIsOneRequest) {
  const auto file = files_->create("a", data(5));
  server_.forget_requests();
  file->write_at(0, as_bytes("hello"));
  EXPECT_EQ(server_.requests(), 0U);
  bucket_->keeps_apart("");
  server_.forget_requests();
  file->commit();
  EXPECT_EQ(server_.requests(), 1U);
  EXPECT_EQ(stored(), "hello");
}

// Sizes and pieces around the borders of parts, from the front, from the back and in any order.
TEST_F(S3Writer, EveryWayToCutItArrives) {
  std::mt19937 random(5);
  int round = 0;
  for (const std::uint64_t size : {kPart + 1, 2 * kPart - 1, 2 * kPart, 2 * kPart + 1, 3 * kPart + 4096}) {
    for (const std::uint64_t piece : {kPart - 1, kPart, kPart + 1, 2 * kPart, kPart / 3, size}) {
      const std::string text = noise(size);
      const std::string name = std::to_string(round++);
      std::vector<std::uint64_t> begins;
      for (std::uint64_t at = 0; at < size; at += piece) begins.push_back(at);
      if (round % 3 == 1) std::reverse(begins.begin(), begins.end());
      if (round % 3 == 2) std::shuffle(begins.begin(), begins.end(), random);
      auto file = files_->create(name, data(size));
      for (const std::uint64_t at : begins)
        file->write_at(at, as_bytes(text).subspan(at, std::min(piece, size - at)));
      EXPECT_FALSE(server_.objects().contains(name));
      file->commit();
      ASSERT_TRUE(is_stored(text, name)) << size << " in pieces of " << piece;
      files_->remove(name);
    }
  }
  EXPECT_EQ(server_.uploads(), 0U);
}

TEST_F(S3Writer, ManyThreadsWriteOneFile) {
  const std::string text = noise(5 * kPart + 777);
  auto file = files_->create("a", data(text.size()));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      constexpr std::size_t kPiece = 3 << 20;
      for (std::size_t at = t * kPiece; at < text.size(); at += 4 * kPiece)
        file->write_at(at, as_bytes(text).subspan(at, std::min(kPiece, text.size() - at)));
    });
  for (std::thread& thread : threads) thread.join();
  file->commit();
  EXPECT_TRUE(is_stored(text));
}

TEST_F(S3Writer, PartsThatNobodyWritesAreZeros) {
  auto file = files_->create("a", data(6 * kPart));
  file->write_at(kPart + 10, as_bytes("x"));
  file->write_at(4 * kPart, as_bytes("y"));
  file->commit();
  std::string text(4 * kPart + 1, '\0');
  text[kPart + 10] = 'x';
  text.back() = 'y';
  EXPECT_TRUE(is_stored(text));
  files_->create("empty", data(6 * kPart))->commit();
  EXPECT_EQ(stored("empty"), "");
}

TEST_F(S3Writer, AFileOfNoKnownSizeGoesInPartsWhenItGrows) {
  const std::string text = noise(3 * kPart + 5);
  auto file = files_->create("a", data(0));
  file->write_at(2 * kPart, as_bytes(text).subspan(2 * kPart));
  EXPECT_EQ(server_.uploads(), 1U);
  file->write_at(0, as_bytes(text).first(10));
  file->write_at(10, as_bytes(text).subspan(10, 2 * kPart - 10));
  file->commit();
  EXPECT_TRUE(is_stored(text));
}

TEST_F(S3Writer, WhatWasSentCannotBeWrittenAgain) {
  const std::string text = noise(2 * kPart);
  auto file = files_->create("a", data(text.size()));
  file->write_at(0, as_bytes(text).first(kPart));
  EXPECT_EQ(code_of([&] { file->write_at(5, as_bytes("x")); }), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([&] { file->write_at(2 * kPart - 1, as_bytes("xy")); }), ErrorCode::kUnsupported);
}

TEST_F(S3Writer, NothingStaysBehindOfAFileThatIsNotCommitted) {
  const std::string text = noise(3 * kPart);
  auto file = files_->create("a", data(text.size()));
  file->write_at(0, as_bytes(text).first(2 * kPart));
  EXPECT_EQ(server_.uploads(), 1U);
  const auto seen = files_->list();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(is_partial(seen[0].name));
  EXPECT_TRUE(files_->modified(seen[0].name));
  file.reset();
  EXPECT_EQ(server_.uploads(), 0U);
  EXPECT_EQ(server_.stored_bytes(), 0U);
}

TEST_F(S3Writer, AnUploadThatSomebodyTookAwayIsAConflict) {
  const std::string text = noise(3 * kPart);
  for (const bool before_commit : {false, true}) {
    auto file = files_->create("a", data(text.size()));
    file->write_at(0, as_bytes(text).first(2 * kPart));
    if (before_commit) file->write_at(2 * kPart, as_bytes(text).subspan(2 * kPart));
    files_->remove(files_->list().at(0).name);
    EXPECT_EQ(server_.uploads(), 0U);
    EXPECT_EQ(code_of([&] {
                if (!before_commit) file->write_at(2 * kPart, as_bytes(text).subspan(2 * kPart));
                file->commit();
              }),
              ErrorCode::kConflict);
    file.reset();
    EXPECT_TRUE(server_.keys().empty() || server_.keys()[0].starts_with(".cairn-probe."));
  }
}

TEST_F(S3Writer, ALargeFileThatIsThereAlreadyStays) {
  const std::string text = noise(2 * kPart);
  auto file = files_->create("a", data(text.size()));
  file->write_at(0, as_bytes(text));
  server_.put("a", "another's");
  EXPECT_EQ(code_of([&] { file->commit(); }), ErrorCode::kConflict);
  file.reset();
  EXPECT_EQ(stored(), "another's");
  EXPECT_EQ(server_.uploads(), 0U);
}

TEST_F(S3Writer, LostAnswersOfAnUploadAreSettledByLooking) {
  const std::string text = noise(3 * kPart);
  for (const char* kind : {"UploadPart", "CompleteMultipartUpload"}) {
    auto left = std::make_shared<std::atomic<int>>(1);
    server_.set_fault([=](const S3Request& request) {
      const bool it = request.kind == kind && left->fetch_sub(1) > 0;
      return it ? S3Fault{.drop = true, .carried_out = true} : S3Fault();
    });
    auto file = files_->create(kind, data(text.size()));
    file->write_at(0, as_bytes(text));
    file->commit();
    EXPECT_TRUE(is_stored(text, kind)) << kind;
  }
  EXPECT_EQ(server_.uploads(), 0U);
}

TEST_F(S3Writer, AKeyThatIsTooLongIsAnErrorBeforeAnythingIsSent) {
  server_.forget_requests();
  EXPECT_EQ(code_of([&] { files_->create(std::string(1025, 'k'), data(1)); }), ErrorCode::kLimit);
  EXPECT_EQ(code_of([&] { files_->stat(std::string(1025, 'k')); }), ErrorCode::kLimit);
  EXPECT_EQ(server_.requests(), 0U);
}

TEST_F(S3Writer, ALargeFileIsRenamedOnTheServer) {
  const std::string text = noise((std::size_t{64} << 20) + 1);
  server_.put("a", text);
  server_.forget_requests();
  files_->rename("a", "b");
  EXPECT_TRUE(is_stored(text, "b"));
  EXPECT_EQ(server_.requests("GetObject"), 0U);
  EXPECT_EQ(server_.keys(), std::vector<std::string>{"b"});
}

TEST_F(S3Writer, WhatIsReplacedWhileItIsReadIsStale) {
  const std::string text = noise(3 * kPart);
  server_.put("a", text);
  const auto source = files_->open("a");
  EXPECT_TRUE(read_all(*source) == text);
  server_.put("a", noise(3 * kPart + 1));
  const Error e = error_of([&] { read_all(*source); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_EQ(e.os_error(), ESTALE);
  files_->remove("a");
  EXPECT_EQ(error_of([&] { read_all(*source); }).os_error(), ESTALE);
}

}  // namespace
}  // namespace cairn::s3
