// Requests over loopback: what is sent and received, and what a server that does wrong leads to.
#include "storage/s3/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cairn/error.h"
#include "testing/errors.h"
#include "testing/s3_server.h"

namespace cairn::s3 {
namespace {

using namespace std::chrono_literals;
using Outcome = Exchange::Outcome;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::span<std::byte> room_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

// The only one, until it has ended.
Exchange& ended(Http& http, Exchange& exchange) {
  Transfers transfers(http);
  transfers.start(exchange);
  EXPECT_EQ(transfers.next(), &exchange);
  EXPECT_EQ(transfers.under_way(), 0U);
  return exchange;
}

// A server that answers each request with these bytes, whatever they are, and then ends the connection.
void answer_all_with(S3Server& server, const std::string& raw) {
  server.set_fault([raw](const S3Request&) { return S3Fault{.raw = raw}; });
}

// A port that nobody listens at.
int closed_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(socket);
  return ntohs(address.sin_port);
}

TEST(S3Http, ABodyOfSeveralSpansArrivesAndComesBackWhereItIsWanted) {
  S3Server server;
  Http http;
  const std::string url = server.endpoint() + "/bucket/key";
  const std::string large(3'000'001, 'x');
  Exchange put = {.method = "PUT", .url = url, .body = {bytes_of("ab"), {}, bytes_of(large), bytes_of("yz")}};
  EXPECT_EQ(ended(http, put).outcome, Outcome::kAnswered) << put.why;
  EXPECT_EQ(put.status, 200);
  const std::string whole = "ab" + large + "yz";
  EXPECT_EQ(server.objects().at("key").bytes, whole);
  EXPECT_FALSE(put.header("etag").empty());

  std::string here(whole.size(), '\0');
  Exchange get = {.url = url, .into = room_of(here)};
  EXPECT_EQ(ended(http, get).status, 200);
  EXPECT_EQ(get.received, whole.size());
  EXPECT_TRUE(here == whole);
  EXPECT_EQ(get.text, "");
}

TEST(S3Http, AnEmptyPutAndAnEmptyPostSayThatTheyAreEmpty) {
  S3Server server;
  std::string lengths;
  server.set_fault([&](const S3Request& r) {
    const auto length = r.headers.find("content-length");
    lengths += r.method + (length == r.headers.end() ? "" : length->second) + " ";
    return S3Fault{};
  });
  Http http;
  Exchange put = {.method = "PUT", .url = server.endpoint() + "/bucket/key"};
  EXPECT_EQ(ended(http, put).status, 200);
  Exchange post = {.method = "POST", .url = server.endpoint() + "/bucket/other?uploads="};
  EXPECT_EQ(ended(http, post).status, 200);
  EXPECT_EQ(server.uploads(), 1U);
  Exchange gone = {.method = "DELETE", .url = server.endpoint() + "/bucket/key"};
  EXPECT_EQ(ended(http, gone).status, 204);
  EXPECT_EQ(lengths, "PUT0 POST0 DELETE ");
}

TEST(S3Http, AHeadHasNoBodyAndLeavesTheConnectionUsable) {
  S3Server server;
  server.put("key", "12345");
  Http http;
  const std::string url = server.endpoint() + "/bucket/key";
  for (int i = 0; i < 3; ++i) {
    Exchange head = {.method = "HEAD", .url = url};
    EXPECT_EQ(ended(http, head).status, 200);
    EXPECT_EQ(head.header("content-length"), "5");
    Exchange get = {.url = url};
    EXPECT_EQ(ended(http, get).text, "12345");
  }
  EXPECT_EQ(server.connections(), 1U);
}

TEST(S3Http, ConnectionsAreTakenUpAgainByTheNextCall) {
  S3Server server;
  server.put("key", "12345");
  Http http;
  for (int i = 0; i < 5; ++i) {
    std::vector<Exchange> exchanges(4, Exchange{.url = server.endpoint() + "/bucket/key"});
    Transfers transfers(http);
    for (Exchange& exchange : exchanges) transfers.start(exchange);
    while (const Exchange* done = transfers.next()) EXPECT_EQ(done->text, "12345") << done->why;
  }
  EXPECT_EQ(server.requests(), 20U);
  EXPECT_LE(server.connections(), 4U);
}

TEST(S3Http, OnlyABodyOfA2xxLandsInPlace) {
  S3Server server;
  Http http;
  std::string here(5, '-');
  Exchange get = {.url = server.endpoint() + "/bucket/missing", .into = room_of(here)};
  EXPECT_EQ(ended(http, get).status, 404);
  EXPECT_EQ(here, "-----");
  EXPECT_NE(get.text.find("NoSuchKey"), std::string::npos);
}

TEST(S3Http, ALongerBodyThanAskedForIsRefusedAndNothingIsWrittenBeyond) {
  S3Server server;
  server.put("key", std::string(100'000, 'x'));
  Http http;
  std::string here(70'000, '-');
  Exchange get = {.url = server.endpoint() + "/bucket/key", .into = room_of(here).first(60'000)};
  EXPECT_EQ(ended(http, get).outcome, Outcome::kTooLong);
  EXPECT_EQ(here.substr(60'000), std::string(10'000, '-'));
  Exchange text = {.url = server.endpoint() + "/bucket/key", .most_text = 99'999};
  EXPECT_EQ(ended(http, text).outcome, Outcome::kTooLong);
  EXPECT_LE(text.text.size(), 99'999U);
}

TEST(S3Http, ATruncatedBodyIsBroken) {
  S3Server server;
  server.put("key", std::string(100'000, 'x'));
  server.set_fault([](const S3Request&) { return S3Fault{.truncate = 50'000}; });
  Http http;
  std::string here(100'000, '-');
  Exchange get = {.url = server.endpoint() + "/bucket/key", .into = room_of(here)};
  EXPECT_EQ(ended(http, get).outcome, Outcome::kBroken);
  EXPECT_FALSE(get.why.empty());
  EXPECT_LE(get.received, 50'000U);
}

TEST(S3Http, NobodyIsUnreachableAndNoAnswerIsBroken) {
  Http http;
  Exchange refused = {.url = "http://127.0.0.1:" + std::to_string(closed_port()) + "/"};
  EXPECT_EQ(ended(http, refused).outcome, Outcome::kUnreachable);
  EXPECT_FALSE(refused.why.empty());
  S3Server server;
  server.set_fault([](const S3Request&) { return S3Fault{.drop = true}; });
  Exchange dropped = {.url = server.endpoint() + "/bucket/key"};
  EXPECT_EQ(ended(http, dropped).outcome, Outcome::kBroken);
}

// libcurl would send it again by itself, and a condition would meet its own success.
TEST(S3Http, ARequestThatAKeptConnectionLosesIsNotSentASecondTimeInSecret) {
  S3Server server;
  Http http;
  Exchange first = {.url = server.endpoint() + "/bucket/key"};
  EXPECT_EQ(ended(http, first).status, 404);
  server.set_fault([](const S3Request&) { return S3Fault{.drop = true, .carried_out = true}; });
  for (const char* method : {"PUT", "POST", "DELETE"}) {
    server.forget_requests();
    Exchange lost = {.method = method, .url = server.endpoint() + "/bucket/key?uploads="};
    EXPECT_EQ(ended(http, lost).outcome, Outcome::kBroken) << method;
    EXPECT_EQ(server.requests(), 1U) << method;
    server.set_fault({});
    Exchange again = {.url = server.endpoint() + "/bucket/key"};  // a connection for the next one
    EXPECT_EQ(ended(http, again).outcome, Outcome::kAnswered);
    server.set_fault([](const S3Request&) { return S3Fault{.drop = true, .carried_out = true}; });
  }
}

TEST(S3Http, ARefusalComesBeforeALargeBody) {
  S3Server server({.access_key = "k", .secret_key = "s"});
  Http http;
  const std::string large(32 << 20, 'x');
  Exchange put = {.method = "PUT", .url = server.endpoint() + "/bucket/key", .body = {bytes_of(large)}};
  std::atomic<bool> asked = false;
  server.set_fault([&](const S3Request& r) {
    const auto expect = r.headers.find("expect");
    asked = expect != r.headers.end() && expect->second == "100-continue";
    return S3Fault{};
  });
  EXPECT_EQ(ended(http, put).outcome, Outcome::kAnswered) << put.why;
  EXPECT_EQ(put.status, 403);
  EXPECT_TRUE(asked);
  Exchange small = {.method = "PUT", .url = server.endpoint() + "/bucket/key", .body = {bytes_of("small")}};
  EXPECT_EQ(ended(http, small).status, 403);
  EXPECT_FALSE(asked);
}

TEST(S3Http, ARedirectIsAnAnswerAndIsNotFollowed) {
  S3Server other;
  S3Server server;
  answer_all_with(server, "HTTP/1.1 307 Elsewhere\r\nLocation: " + other.endpoint() +
                              "/bucket/key\r\nContent-Length: 0\r\n\r\n");
  Http http;
  Exchange get = {.url = server.endpoint() + "/bucket/key", .headers = {{"authorization", "secret"}}};
  EXPECT_EQ(ended(http, get).status, 307);
  EXPECT_EQ(other.connections(), 0U);
}

TEST(S3Http, HeadersThatNeverEndAreTooLong) {
  S3Server server;
  Http http;
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 5000; ++i) many += "X-Header-" + std::to_string(i) + ": nothing\r\n";
  std::string before;
  for (int i = 0; i < 5000; ++i) before += "HTTP/1.1 100 Continue\r\nA: b\r\n\r\n";
  const std::string one = "HTTP/1.1 200 OK\r\nX: " + std::string(300'000, 'x');
  for (const std::string& raw : {many, before, one}) {
    answer_all_with(server, raw);
    Exchange get = {.url = server.endpoint() + "/bucket/key"};
    EXPECT_EQ(ended(http, get).outcome, Outcome::kTooLong) << raw.substr(0, 40) << get.why;
    EXPECT_LE(get.answer_headers.size(), 5000U);
  }
}

TEST(S3Http, AnswersThatAreNoneAreBroken) {
  S3Server server;
  Http http;
  for (const char* raw : {"nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n123", "HTTP/1.1",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"}) {
    answer_all_with(server, raw);
    Exchange get = {.url = server.endpoint() + "/bucket/key"};
    EXPECT_EQ(ended(http, get).outcome, Outcome::kBroken) << raw;
  }
}

TEST(S3Http, ThePreliminaryAnswersDoNotCountAndNamesAreInLowerCase) {
  S3Server server;
  answer_all_with(server,
                  "HTTP/1.1 102 Wait\r\nA: early\r\n\r\nHTTP/1.1 200 OK\r\nX-MiXed:  two words \t\r\n"
                  "Content-Length: 2\r\n\r\nok");
  Http http;
  Exchange get = {.url = server.endpoint() + "/bucket/key"};
  EXPECT_EQ(ended(http, get).status, 200);
  EXPECT_EQ(get.header("x-mixed"), "two words");
  EXPECT_EQ(get.header("a"), "");
  EXPECT_EQ(get.text, "ok");
}

TEST(S3Http, TheDeadlineAndTheSilenceOfAServerEndATransfer) {
  S3Server server;
  server.set_fault([](const S3Request&) { return S3Fault{.delay = 1500ms}; });
  Http http({.silence = 100ms});
  const std::string url = server.endpoint() + "/bucket/key";
  Exchange late = {.url = url, .deadline = std::chrono::steady_clock::now() + 20ms};
  EXPECT_EQ(ended(http, late).outcome, Outcome::kLate);
  Exchange silent = {.url = url};
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(ended(http, silent).outcome, Outcome::kBroken);
  EXPECT_GE(std::chrono::steady_clock::now() - before, 100ms);
  EXPECT_NE(silent.why.find("silent"), std::string::npos);
}

TEST(S3Http, ASlowBodyIsNotSilence) {
  S3Server server;
  server.put("key", std::string(40'000, 'x'));
  server.set_fault([](const S3Request&) { return S3Fault{.bytes_per_second = 40'000}; });
  Http http({.silence = 700ms});
  Exchange get = {.url = server.endpoint() + "/bucket/key"};
  EXPECT_EQ(ended(http, get).outcome, Outcome::kAnswered) << get.why;
  EXPECT_EQ(get.text.size(), 40'000U);
}

TEST(S3Http, ATransferBeginsWhenItsTimeHasComeAndNotWhenItWasStopped) {
  S3Server server;
  server.put("key", "12345");
  Http http;
  Exchange stopped = {.url = server.endpoint() + "/bucket/key"};
  Exchange later = stopped;
  Exchange unfinished = stopped;
  const auto begin = std::chrono::steady_clock::now();
  {
    Transfers transfers(http);
    transfers.start(stopped, begin + 20ms);
    transfers.start(later, begin + 60ms);
    transfers.start(unfinished, begin + 10h);
    transfers.stop(stopped);
    EXPECT_EQ(transfers.next(begin + 1ms), nullptr);
    EXPECT_EQ(transfers.under_way(), 2U);
    EXPECT_EQ(transfers.next(), &later);
  }
  EXPECT_GE(std::chrono::steady_clock::now(), begin + 60ms);
  EXPECT_EQ(later.text, "12345");
  EXPECT_EQ(server.requests(), 1U);
}

TEST(S3Http, AServerIsTrustedByTheBundleAlone) {
  S3Server server({.tls = true});
  server.put("key", "12345");
  const std::string url = server.endpoint() + "/bucket/key";
  Http trusting({.ca_bundle = server.ca_bundle(), .connect_timeout = 5min});
  Exchange get = {.url = url};
  EXPECT_EQ(ended(trusting, get).text, "12345") << get.why;
  Http http({.connect_timeout = 5min});  // a machine may be busy
  Exchange untrusted = {.url = url};
  EXPECT_EQ(ended(http, untrusted).outcome, Outcome::kUntrusted);
  EXPECT_EQ(untrusted.text, "");
  Http wrong({.ca_bundle = "/nowhere/ca.pem"});
  Exchange no_bundle = {.url = url};
  EXPECT_EQ(ended(wrong, no_bundle).outcome, Outcome::kUntrusted);
}

TEST(S3Http, ALineBreakInAHeaderIsRefused) {
  Http http;
  Transfers transfers(http);
  Exchange get = {.url = "http://127.0.0.1/", .headers = {{"x-amz-meta-a", "b\r\nx-evil: 1"}}};
  EXPECT_EQ(code_of([&] { transfers.start(get); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(transfers.under_way(), 0U);
}

TEST(S3Http, ManyThreadsUseOneObject) {
  S3Server server;
  server.put("key", std::string(300'000, 'x'));
  Http http;
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        Exchange get = {.url = server.endpoint() + "/bucket/key"};
        good += ended(http, get).text.size() == 300'000 ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
  EXPECT_LE(server.connections(), 4U);
}

TEST(S3Http, AForkedChildHasConnectionsOfItsOwn) {
  S3Server server;
  server.put("key", "12345");
  auto http = std::make_unique<Http>();
  const std::string url = server.endpoint() + "/bucket/key";
  Exchange before = {.url = url};
  EXPECT_EQ(ended(*http, before).text, "12345");
  EXPECT_EQ(server.connections(), 1U);
  const pid_t child = fork();
  if (child == 0) {
    Exchange inside = {.url = url};
    const bool good = ended(*http, inside).text == "12345";
    http.reset();  // must not end what the parent uses
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(server.connections(), 2U);
  Exchange after = {.url = url};
  EXPECT_EQ(ended(*http, after).text, "12345");
  EXPECT_EQ(server.connections(), 2U);
}

}  // namespace
}  // namespace cairn::s3
