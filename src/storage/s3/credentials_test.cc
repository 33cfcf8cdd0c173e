// How long keys are kept, and who asks for new ones. Where they come from is in key_sources_test.cc.
#include "storage/s3/credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "storage/s3/digest.h"
#include "testing/canned_http.h"
#include "testing/errors.h"
#include "testing/s3_surroundings.h"

namespace cairn::s3 {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const Time kNoon = *time_of_iso("2026-01-01T12:00:00Z");

std::string iso(Time time) {
  std::string text = signing_time(time);  // 20260101T120000Z
  for (const std::size_t at : {4U, 7U}) text.insert(at, "-");
  for (const std::size_t at : {13U, 16U}) text.insert(at, ":");
  return text;
}

// A container that gives keys "K1", "K2", ...; with a clock of its own.
struct LendingContainer {
  std::atomic<int> asked = 0;
  std::atomic<bool> broken = false;
  std::atomic<Time> now = kNoon;
  std::chrono::seconds lent_for = std::chrono::hours(1);
  std::function<void()> before_answer = [] {};

  CannedHttp server{[this](const CannedRequest&) -> CannedAnswer {
    before_answer();
    if (broken) return {403, "hush"};
    return {200, R"({"AccessKeyId": "K)" + std::to_string(++asked) +
                     R"(", "SecretAccessKey": "hush", "Token": "t", "Expiration": ")" +
                     iso(now.load() + lent_for) + "\"}"};
  }};
  FakeSurroundings fake{
      {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url() + "/keys"}, {"AWS_EC2_METADATA_DISABLED", "true"}},
      {}};
  Http http;
  CredentialChain chain{fake.all(), {}, http, [this] { return now.load(); }};

  std::string key() { return chain.get().access_key; }
};

TEST(S3Credentials, KeysAreAskedForOnceAndAgainFiveMinutesBeforeTheirEnd) {
  LendingContainer lender;
  EXPECT_EQ(lender.key(), "K1");
  lender.now = kNoon + minutes(54) + seconds(59);
  EXPECT_EQ(lender.key(), "K1");
  lender.now = kNoon + minutes(55);
  EXPECT_EQ(lender.key(), "K2");
  EXPECT_EQ(lender.key(), "K2");
  EXPECT_EQ(lender.chain.get().expires, lender.now.load() + std::chrono::hours(1));
}

TEST(S3Credentials, KeysThatAreLentForLessAreTakenAndRenewedAfterHalfOfIt) {
  LendingContainer lender;
  lender.lent_for = minutes(4);
  EXPECT_EQ(lender.key(), "K1");
  lender.now = kNoon + seconds(119);
  EXPECT_EQ(lender.key(), "K1");
  lender.now = kNoon + seconds(120);
  EXPECT_EQ(lender.key(), "K2");
}

TEST(S3Credentials, KeysThatHaveEndedByAClockThatIsWrongAreUsedAllTheSame) {
  LendingContainer lender;
  lender.lent_for = -minutes(60);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lender.key(), "K1");
  lender.now = kNoon + seconds(61);
  EXPECT_EQ(lender.key(), "K2");
}

TEST(S3Credentials, WhileOldKeysHoldAFailedRenewalIsNoErrorAndIsTriedAgainLater) {
  LendingContainer lender;
  EXPECT_EQ(lender.key(), "K1");
  lender.broken = true;
  lender.now = kNoon + minutes(56);
  const std::size_t asked = lender.server.requests().size();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lender.key(), "K1");
  EXPECT_EQ(lender.server.requests().size(), asked + 1);
  lender.now = kNoon + minutes(60);
  const Error e = error_of([&] { lender.key(); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_TRUE(mentions(e, "403")) << e.what();
  EXPECT_FALSE(mentions(e, "hush")) << e.what();
  lender.broken = false;
  EXPECT_EQ(lender.key(), "K2");
}

TEST(S3Credentials, KeysThatAServerRefusedAreAskedForAgainOnce) {
  LendingContainer lender;
  const Credentials first = lender.chain.get();
  lender.chain.renew_after(first);
  EXPECT_EQ(lender.key(), "K2");
  lender.chain.renew_after(first);  // by another request, which was under way with the old ones
  EXPECT_EQ(lender.key(), "K2");
}

TEST(S3Credentials, RefusedKeysAreNotUsedWhenTheSourceFails) {
  LendingContainer lender;
  lender.chain.renew_after(lender.chain.get());
  lender.broken = true;
  EXPECT_EQ(code_of([&] { lender.key(); }), ErrorCode::kIo);
}

TEST(S3Credentials, ManyThreadsThatHaveNoneWaitForOneThatAsks) {
  LendingContainer lender;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { wrong += lender.key() != "K1" ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(lender.asked, 1);
}

TEST(S3Credentials, WhileOneThreadRenewsOthersUseTheOldKeys) {
  LendingContainer lender;
  std::promise<void> reached, go_on;
  EXPECT_EQ(lender.key(), "K1");
  lender.before_answer = [&] {
    reached.set_value();
    go_on.get_future().wait();
  };
  lender.now = kNoon + minutes(56);
  auto renewing = std::async(std::launch::async, [&] { return lender.key(); });
  reached.get_future().wait();
  EXPECT_EQ(lender.key(), "K1");
  go_on.set_value();
  EXPECT_EQ(renewing.get(), "K2");
}

TEST(S3Credentials, ThoseWhoWaitedGetTheSameErrorAndDoNotAskAgain) {
  LendingContainer lender;
  std::promise<void> reached, go_on;
  lender.broken = true;
  lender.before_answer = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    reached.set_value();
    go_on.get_future().wait();
  };
  const auto code = [&] { return code_of([&] { lender.key(); }); };
  auto asking = std::async(std::launch::async, code);
  reached.get_future().wait();
  auto waiting = std::async(std::launch::async, code);
  // Long enough for it to wait; if it has not begun by then it asks for itself, and gets the same.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  go_on.set_value();
  EXPECT_EQ(asking.get(), ErrorCode::kIo);
  EXPECT_EQ(waiting.get(), ErrorCode::kIo);
  EXPECT_LE(lender.server.requests().size(), 2U);
}

}  // namespace
}  // namespace cairn::s3
