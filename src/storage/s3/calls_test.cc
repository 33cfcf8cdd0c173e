// Many calls at once: what threads share of delays and places, second tries, the first failure, a fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

#include "storage/s3/client.h"
#include "testing/errors.h"
#include "testing/s3_client.h"

namespace cairn::s3 {
namespace {

using namespace std::chrono_literals;

TEST(S3Calls, AThrottledClientWaitsWithAllItsThreadsAndAsksForLess) {
  S3Server server;
  server.put("key", "12345");
  // Nobody may come while the wave of refusals tells all to wait.
  const TestClient client(server, {.first_delay = 50ms, .most_delay = 200ms, .most_in_flight = 16});
  std::mutex mutex;
  std::uint64_t refused = 0;
  server.set_fault([&](const S3Request& r) {
    const std::lock_guard lock(mutex);
    if (r.in_flight <= 3) return S3Fault{.delay = 2ms};
    ++refused;
    return S3Fault{.status = 503};
  });
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      std::vector<Call> calls(60, Call{.key = "key"});
      client->call_all(calls);
      for (const Call& call : calls) good += call.text == "12345" ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 120);
  EXPECT_GT(refused, 0U);
  EXPECT_LT(refused, 120U);  // one each at most, where all by themselves would have many
}

TEST(S3Calls, TheDelayThatOneThreadWasToldHoldsForTheOthers) {
  S3Server server;
  server.put("key", "12345");
  const TestClient client(server, {.most_delay = 10s});
  server.set_fault([](const S3Request& r) {
    return r.number == 1 ? S3Fault{.status = 503, .headers = {{"Retry-After", "1"}}} : S3Fault{};
  });
  const auto begin = std::chrono::steady_clock::now();
  std::thread first([&] {
    Call call = {.key = "key"};
    client->call(call);
  });
  while (server.requests() < 1) std::this_thread::yield();
  // By the time the answer is there; a request that overtakes it is not what this is about.
  std::this_thread::sleep_for(100ms);
  Call second = {.key = "key"};
  client->call(second);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s);
  first.join();
}

TEST(S3Calls, ManyCallsAtOnceKeepToTheLimit) {
  S3Server server({.latency = std::chrono::microseconds(500)});
  const TestClient client(server, {.most_in_flight = 8});
  std::vector<std::string> texts;
  for (int i = 0; i < 64; ++i) texts.push_back("object " + std::to_string(i));
  std::vector<Call> puts;
  for (int i = 0; i < 64; ++i) puts.push_back(put_of("key" + std::to_string(i), texts[i]));
  client->call_all(puts);
  EXPECT_EQ(server.keys().size(), 64U);
  EXPECT_EQ(server.objects().at("key63").bytes, "object 63");
  EXPECT_LE(server.most_in_flight(), 8);
  EXPECT_GT(server.most_in_flight(), 1);
  EXPECT_LE(server.connections(), 8U);
  client->call_all({});
}

TEST(S3Calls, TheFirstFailureBreaksTheOthersOff) {
  S3Server server;
  const TestClient client(server);
  server.set_fault([](const S3Request& r) {
    return r.key == "bad" ? S3Fault{.status = 403, .code = "AccessDenied"} : S3Fault{.delay = 1000ms};
  });
  std::vector<Call> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(put_of(i == 5 ? "bad" : "good", "12345"));
  const Error e = error_of([&] { client->call_all(calls); });
  EXPECT_EQ(e.os_error(), EACCES);
  EXPECT_TRUE(mentions(e, "s3://bucket/bad")) << e.what();
  EXPECT_TRUE(calls[0].sent_before);
  EXPECT_EQ(calls[0].status, 0);
  // Their places are free again.
  server.set_fault({});
  std::vector<Call> more(64, put_of("key", "12345"));
  client->call_all(more);
  EXPECT_EQ(more.back().status, 200);
}

TEST(S3Calls, ASlowReadIsAskedASecondTimeAndTheFasterAnswerTaken) {
  S3Server server;
  server.put("key", std::string(100'000, 'a') + std::string(100'000, 'b'));
  const TestClient client(server, {.hedge_after = 3});
  std::string here(100'000, '-');
  const auto read = [&] {
    here.assign(100'000, '-');
    Call get = get_of("key", 50'000, space_of(here));
    client->call(get);
    EXPECT_TRUE(here == std::string(50'000, 'a') + std::string(50'000, 'b'));
  };
  for (int i = 0; i < 8; ++i) read();
  EXPECT_EQ(client->requests(), 8U);
  const std::uint64_t next = server.requests() + 1;
  server.set_fault(
      [next](const S3Request& r) { return r.number == next ? S3Fault{.delay = 20s} : S3Fault{}; });
  const auto begin = std::chrono::steady_clock::now();
  read();
  EXPECT_EQ(client->requests(), 10U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 19s);
  // The first answer is taken when it comes first, and a failure of one leaves the other.
  server.set_fault([next](const S3Request& r) {
    return r.number == next + 2   ? S3Fault{.delay = 400ms}
           : r.number == next + 3 ? S3Fault{.status = 500}
                                  : S3Fault{};
  });
  read();
  EXPECT_EQ(client->requests(), 12U);

  const TestClient never(server, {.hedge_after = 0});
  server.set_fault({});
  std::vector<std::string> rooms(9, std::string(1000, '-'));
  for (std::string& room : rooms) {
    Call get = get_of("key", 0, space_of(room));
    never->call(get);
    server.set_fault([](const S3Request&) { return S3Fault{.delay = 150ms}; });
  }
  EXPECT_EQ(never->requests(), 9U);
}

TEST(S3Calls, AForkedChildGoesOnWithPlacesOfItsOwn) {
  S3Server server;
  server.put("key", "12345");
  const TestClient client(server, {.most_in_flight = 1});
  Call before = {.key = "key"};
  client->call(before);
  server.set_fault([](const S3Request& r) { return r.number == 2 ? S3Fault{.delay = 1s} : S3Fault{}; });
  std::thread busy([&] {
    Call call = {.key = "key"};
    client->call(call);
    EXPECT_EQ(call.text, "12345");
  });
  while (server.requests() < 2) std::this_thread::yield();
  const pid_t child = fork();  // while the only place is taken
  if (child == 0) {
    alarm(30);
    Call call = {.key = "key"};
    client->call(call);
    _exit(call.text == "12345" ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  busy.join();
}

}  // namespace
}  // namespace cairn::s3
