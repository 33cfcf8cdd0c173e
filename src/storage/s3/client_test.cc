// Calls to a loopback server that does wrong, one thing at a time.
#include "storage/s3/client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "storage/s3/errors.h"
#include "storage/s3/request.h"
#include "testing/errors.h"
#include "testing/s3_client.h"

namespace cairn::s3 {
namespace {

using namespace std::chrono_literals;

TEST(S3Client, APutAndAGetAreSignedInEitherWayToNameTheBucket) {
  S3Server server(with_keys());
  for (const std::string& endpoint : {server.endpoint(), server.virtual_endpoint()}) {
    const TestClient client(endpoint, {});
    for (const std::string key : {"a/b c+%ü//..", "plain"}) {
      Call put = put_of(key, "12345");
      put.headers.emplace_back("x-amz-meta-name", "a  value");
      client->call(put);
      EXPECT_EQ(put.status, 200);
      EXPECT_EQ(server.objects().at(key).bytes, "12345");
      std::string here(3, '-');
      Call get = get_of(key, 1, space_of(here));
      client->call(get);
      EXPECT_EQ(get.status, 206);
      EXPECT_EQ(here, "234");
      EXPECT_FALSE(get.header("etag").empty());
      EXPECT_FALSE(get.sent_before);
    }
    Call list = {.query = {{"list-type", "2"}, {"prefix", "a/"}}};
    client->call(list);
    EXPECT_NE(list.text.find("<Key>"), std::string::npos) << list.text;
  }
}

TEST(S3Client, WhatAFailureOfAKindLeadsTo) {
  S3Server server;
  server.put("key", "12345");
  const TestClient client(server);
  for (const int status : {500, 502, 503, 504, 408, 429}) {
    first_ones_meet(server, 3, {.status = status});
    const std::uint64_t before = client->requests();
    Call get = {.key = "key"};
    client->call(get);
    EXPECT_EQ(get.text, "12345") << status;
    EXPECT_EQ(client->requests(), before + 4) << status;
  }
  for (const int status : {400, 403, 404, 405, 409, 412, 416, 501}) {
    first_ones_meet(server, 1000, {.status = status, .code = "SomethingElse"});
    const std::uint64_t before = client->requests();
    Call get = {.key = "key"};
    const Error e = error_of([&] { client->call(get); });
    EXPECT_EQ(e.code(), status == 404   ? ErrorCode::kNotFound
                        : status == 412 ? ErrorCode::kConflict
                                        : ErrorCode::kIo);
    EXPECT_EQ(e.os_error(), status == 403 ? EACCES : 0);
    EXPECT_EQ(client->requests(), before + 1) << status;
    EXPECT_TRUE(mentions(e, "s3://bucket/key")) << e.what();
    EXPECT_TRUE(mentions(e, std::to_string(status) + " SomethingElse")) << e.what();
    Call expected = {.key = "key", .expected = {status}};
    client->call(expected);
    EXPECT_EQ(expected.status, status);
  }
}

TEST(S3Client, AFullStoreHasItsErrno) {
  S3Server server({.quota = 10});
  const TestClient client(server);
  Call put = put_of("key", "much too long for it");
  const Error e = error_of([&] { client->call(put); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), ENOSPC);
  EXPECT_EQ(client->requests(), 1U);
  EXPECT_TRUE(mentions(e, "QuotaExceeded")) << e.what();
}

TEST(S3Client, ALostAnswerIsToldToTheCaller) {
  S3Server server;
  const TestClient client(server);
  first_ones_meet(server, 1, {.drop = true, .carried_out = true});
  Call put = put_of("key", "12345");
  put.headers.emplace_back("if-none-match", "*");
  put.expected = {412};
  client->call(put);
  EXPECT_EQ(put.status, 412);
  EXPECT_TRUE(put.sent_before);
  EXPECT_EQ(server.objects().at("key").bytes, "12345");
  // Also over a connection that was kept.
  first_ones_meet(server, 1, {.drop = true, .carried_out = true});
  Call other = put_of("other", "12345");
  other.headers = put.headers;
  other.expected = {412};
  client->call(other);
  EXPECT_EQ(other.status, 412);
  EXPECT_TRUE(other.sent_before);
}

TEST(S3Client, AWrongRangeATruncatedBodyAndAWholeObjectAreNotTaken) {
  S3Server server;
  server.put("key", "0123456789");
  const TestClient client(server);
  for (const S3Fault& fault :
       {S3Fault{.wrong_range = true}, S3Fault{.truncate = 2}, S3Fault{.truncate = 0},
        S3Fault{.raw = "HTTP/1.1 206 X\r\nConnection: close\r\nContent-Length: 4\r\n\r\nabcd"},
        S3Fault{.raw = "HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 4\r\n\r\nabcd"},
        S3Fault{.raw = "HTTP/1.1 206 X\r\nConnection: close\r\nContent-Range: bytes "
                       "3-6/10\r\nContent-Length: 3\r\n\r\nabc"},
        S3Fault{.raw =
                    "HTTP/1.1 206 X\r\nConnection: close\r\nContent-Range: bytes 3-60/90\r\n\r\nabcdefgh"}}) {
    first_ones_meet(server, 2, fault);
    const std::uint64_t before = client->requests();
    std::string here(4, '-');
    Call get = get_of("key", 3, space_of(here));
    client->call(get);
    EXPECT_EQ(here, "3456");
    EXPECT_EQ(client->requests(), before + 3) << fault.raw;
  }
  // The whole of it, when that is what was asked for.
  first_ones_meet(server, 1, {.raw = "HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 4\r\n\r\nabcd"});
  std::string here(4, '-');
  Call get = get_of("key", 0, space_of(here));
  client->call(get);
  EXPECT_EQ(here, "abcd");
  // A server that knows no ranges does not learn it.
  first_ones_meet(server, 100,
                  {.raw = "HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789"});
  const std::uint64_t before = client->requests();
  EXPECT_EQ(code_of([&] { client->call(get); }), ErrorCode::kLimit);
  EXPECT_EQ(client->requests(), before + 1);
}

TEST(S3Client, AnErrorInsideA200IsTreatedByItsCode) {
  S3Server server;
  server.put("from", "12345");
  const TestClient client(server);
  Call copy = {.method = "PUT", .key = "to", .headers = {{"x-amz-copy-source", "/bucket/from"}}};
  first_ones_meet(server, 2, {.status = 200, .code = "InternalError"});
  client->call(copy);
  EXPECT_EQ(client->requests(), 3U);
  EXPECT_TRUE(copy.sent_before);
  EXPECT_EQ(server.objects().at("to").bytes, "12345");
  Call post = {.method = "POST", .key = "large", .query = {{"uploads", ""}}};
  first_ones_meet(server, 100, {.status = 200, .code = "AccessDenied"});
  EXPECT_EQ(code_of([&] { client->call(post); }), ErrorCode::kIo);
  EXPECT_EQ(client->requests(), 4U);
  // An object may look like anything.
  server.set_fault({});
  server.put("key", "<Error><Code>InternalError</Code></Error>");
  Call get = {.key = "key"};
  client->call(get);
  EXPECT_EQ(get.status, 200);
}

TEST(S3Client, TriesAndTheDeadlineAreUsedUp) {
  S3Server server;
  const TestClient few(server, {.most_tries = 4});
  server.set_fault([](const S3Request&) { return S3Fault{.status = 500}; });
  Call get = {.key = "key"};
  const Error e = error_of([&] { few->call(get); });
  EXPECT_EQ(e.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(mentions(e, "4 tries")) << e.what();
  EXPECT_TRUE(mentions(e, "500 InternalError")) << e.what();
  EXPECT_EQ(server.requests(), 4U);
  EXPECT_TRUE(get.sent_before);

  const TestClient late(server, {.deadline = 100ms, .most_tries = 1'000'000});
  EXPECT_EQ(code_of([&] { late->call(get); }), ErrorCode::kTimeout);
  server.set_fault([](const S3Request&) { return S3Fault{.delay = 2000ms}; });
  const TestClient waits(server, {.deadline = 50ms});
  EXPECT_EQ(code_of([&] { waits->call(get); }), ErrorCode::kTimeout);
  EXPECT_EQ(waits->requests(), 1U);
  const TestClient silent(server, {.most_tries = 2, .silence = 50ms});
  EXPECT_EQ(code_of([&] { silent->call(get); }), ErrorCode::kTimeout);
  EXPECT_EQ(silent->requests(), 2U);
}

TEST(S3Client, NobodyThereIsToldWithTheEndpointAndNothingCanHaveBeenDone) {
  std::string endpoint;
  {
    const S3Server gone;
    endpoint = gone.endpoint();
  }
  const TestClient client(endpoint, {});
  Call put = put_of("key", "12345");
  const Error e = error_of([&] { client->call(put); });
  EXPECT_EQ(e.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(mentions(e, endpoint)) << e.what();
  EXPECT_TRUE(mentions(e, "4 tries")) << e.what();
  EXPECT_FALSE(put.sent_before);
}

TEST(S3Client, AnUntrustedServerFailsAtOnceAndTheBundleIsNamed) {
  S3Server server({.tls = true});
  const TestClient trusting(server);
  Call put = put_of("key", "12345");
  trusting->call(put);
  EXPECT_EQ(put.status, 200);
  const TestClient client(server.endpoint(), {});
  const Error e = error_of([&] { client->call(put); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);  // after many tries it would be kTimeout
  EXPECT_TRUE(mentions(e, "AWS_CA_BUNDLE")) << e.what();
}

TEST(S3Client, TheRegionThatAServerSaysIsTaken) {
  S3ServerOptions options = with_keys();
  options.region = "eu-central-7";
  S3Server server(options);
  const TestClient client(server);
  std::vector<Call> puts(5, put_of("key", "12345"));
  client->call_all(puts);
  EXPECT_EQ(puts[4].status, 200);
  server.forget_requests();
  client->call(puts[0]);
  EXPECT_EQ(server.requests(), 1U);  // it stays known
  Call head = {.method = "HEAD", .key = "key"};
  const TestClient another(server);
  another->call(head);
  EXPECT_EQ(head.status, 200);
}

TEST(S3Client, ARegionThatIsNoneAndOneThatChangesAreNotFollowed) {
  S3Server server;
  const TestClient client(server);
  Call get = {.key = "key"};
  for (const char* region : {"evil.example/", "us-east-1", "a b"}) {
    first_ones_meet(
        server, 100,
        {.status = 301, .code = "PermanentRedirect", .headers = {{"x-amz-bucket-region", region}}});
    EXPECT_EQ(code_of([&] { client->call(get); }), ErrorCode::kIo) << region;
  }
  EXPECT_EQ(client->requests(), 3U);
  server.set_fault([](const S3Request& r) {
    return S3Fault{.status = 301,
                   .code = "PermanentRedirect",
                   .headers = {{"x-amz-bucket-region", "r-" + std::to_string(r.number)}}};
  });
  EXPECT_EQ(code_of([&] { client->call(get); }), ErrorCode::kIo);
  EXPECT_EQ(client->requests(), 5U);
}

TEST(S3Client, AClockThatIsWrongIsSetByTheServersOnce) {
  S3Server server(with_keys());
  for (const auto ahead : {std::chrono::seconds(5h), std::chrono::seconds(-5h)}) {
    server.set_clock_ahead(ahead);
    const TestClient client(server);
    Call head = {.method = "HEAD", .key = "key", .expected = {404}};  // its answer has no code
    client->call(head);
    EXPECT_EQ(head.status, 404);
    EXPECT_EQ(client->requests(), 2U);
    Call put = put_of("another", "12345");
    client->call(put);
    EXPECT_EQ(client->requests(), 3U);
    const auto off = client->server_time() - (std::chrono::system_clock::now() + ahead);
    EXPECT_LT(std::chrono::abs(off), 1min);
    const TestClient fresh(server);
    fresh->call(put);
    EXPECT_EQ(fresh->requests(), 2U);
  }
  const TestClient client(server);
  first_ones_meet(server, 100, {.status = 403, .code = "RequestTimeTooSkewed"});
  Call put = put_of("key", "12345");
  const Error e = error_of([&] { client->call(put); });
  EXPECT_EQ(e.os_error(), EACCES);
  EXPECT_TRUE(mentions(e, "clock")) << e.what();
  EXPECT_EQ(client->requests(), 2U);
}

TEST(S3Client, CredentialsThatExpiredAreRenewedOnceAndATokenIsNeverTold) {
  S3ServerOptions options = with_keys();
  options.session_token = "the-token";
  S3Server server(options);
  TestClient client(server);
  client.surroundings.variables["AWS_SESSION_TOKEN"] = "the-token";
  Call put = put_of("key", "12345");
  client->call(put);
  first_ones_meet(server, 1, {.status = 400, .code = "ExpiredToken"});
  client->call(put);
  EXPECT_EQ(client->requests(), 3U);
  const std::string body = "<Error><Code>ExpiredToken</Code><Message>the-token is \x01 old</Message></Error>";
  first_ones_meet(server, 100,
                  {.raw = "HTTP/1.1 400 X\r\nConnection: close\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body});
  const Error e = error_of([&] { client->call(put); });
  EXPECT_EQ(client->requests(), 5U);
  EXPECT_TRUE(mentions(e, "ExpiredToken")) << e.what();
  EXPECT_FALSE(mentions(e, "the-token")) << e.what();
  EXPECT_FALSE(mentions(e, "the-secret")) << e.what();
}

TEST(S3Client, WrongKeysFailAtOnceWithWhatToDo) {
  S3Server server({.access_key = "the-key", .secret_key = "another"});
  const TestClient client(server);
  Call put = put_of("key", "12345");
  Error e = error_of([&] { client->call(put); });
  EXPECT_TRUE(mentions(e, "403 SignatureDoesNotMatch")) << e.what();
  EXPECT_TRUE(mentions(e, "secret key")) << e.what();
  S3Server stranger({.access_key = "another", .secret_key = "the-secret"});
  const TestClient unknown(stranger);
  e = error_of([&] { unknown->call(put); });
  EXPECT_TRUE(mentions(e, "InvalidAccessKeyId")) << e.what();
  Call head = {.method = "HEAD", .key = "key"};
  e = error_of([&] { client->call(head); });
  EXPECT_TRUE(mentions(e, "403")) << e.what();
  EXPECT_EQ(e.os_error(), EACCES);
  EXPECT_EQ(client->requests(), 2U);
}

TEST(S3Client, AHostileTextIsBoundedAndPrintable) {
  S3Server server;
  const TestClient client(server);
  const std::string body =
      "<Error><Code>Bad\x1b[31m</Code><Message>" + std::string(500'000, '\xff') + "\n</Message></Error>";
  first_ones_meet(
      server, 1,
      {.raw = "HTTP/1.1 400 X\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\nx-amz-request-id: " + std::string(5000, 'y') + "\r\n\r\n" + body});
  Call get = {.key = "key"};
  const Error e = error_of([&] { client->call(get); });
  EXPECT_LT(std::string(e.what()).size(), 1000U);
  EXPECT_TRUE(std::all_of(e.message().begin(), e.message().end(), [](char c) {
    return c >= 0x20 && c < 0x7f;
  })) << e.what();
  EXPECT_EQ(printable("a\x01ü\nb", 100), "a??? b");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

TEST(S3Client, RequestsThatAreNotSignedAndThoseThatPay) {
  S3Server server(with_keys());
  server.put("key", "12345");
  std::set<std::string> seen;
  server.set_fault([&](const S3Request& r) {
    for (const auto& [name, value] : r.headers) seen.insert(name + "=" + value);
    return S3Fault{};
  });
  const TestClient pays(server, {.settings = {.requester_pays = true, .content_md5 = true}});
  Call put = put_of("key", "Welcome");
  pays->call(put);
  EXPECT_TRUE(seen.contains("x-amz-request-payer=requester"));
  EXPECT_TRUE(seen.contains("content-md5=gyGKw0wYNMJngf5L3pGO5A=="));
  seen.clear();
  const TestClient nobody(server, {.settings = {.unsigned_requests = true}});
  Call get = {.key = "key", .expected = {403}};
  nobody->call(get);
  for (const std::string& header : seen)
    EXPECT_FALSE(header.starts_with("authorization=A") || header.starts_with("x-amz-date=2")) << header;
}

TEST(S3Client, WhereABucketIs) {
  const Settings aws = {.endpoint = "https://s3.eu-west-1.amazonaws.com", .region = "eu-west-1"};
  const Location there = location_of(aws, "bucket");
  EXPECT_FALSE(there.bucket_in_path);
  EXPECT_TRUE(location_of(aws, "my.bucket").bucket_in_path);
  const auto url = [](const Settings& settings, const std::string& bucket, const std::string& key) {
    const Location location = location_of(settings, bucket);
    return exchange_of({.key = key, .query = {{"b", ""}, {"a", "/"}}},
                       {.settings = settings,
                        .bucket = bucket,
                        .location = location,
                        .credentials = nullptr,
                        .now = {}},
                       "")
        .url;
  };
  EXPECT_EQ(url(aws, "bucket", "a b/c"), "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/c?a=%2F&b=");
  EXPECT_EQ(url(aws, "bucket", ""), "https://bucket.s3.eu-west-1.amazonaws.com/?a=%2F&b=");
  EXPECT_EQ(url(aws, "my.bucket", "k"), "https://s3.eu-west-1.amazonaws.com/my.bucket/k?a=%2F&b=");
  const Settings own = {.endpoint = "http://gate:80/s3", .own_endpoint = true, .path_style = true};
  EXPECT_EQ(url(own, "bucket", "k"), "http://gate/s3/bucket/k?a=%2F&b=");
  EXPECT_EQ(url(own, "bucket", ""), "http://gate/s3/bucket?a=%2F&b=");
  EXPECT_EQ(moved(there, aws, "cn-north-1")->endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(moved(there, own, "cn-north-1")->endpoint, there.endpoint);
  EXPECT_EQ(moved(there, aws, "eu-west-1"), std::nullopt);
  EXPECT_EQ(moved(there, aws, "evil.org/"), std::nullopt);
  for (const char* bad : {"ab", "a/b", "host:80", "x@y", "a b c"})
    EXPECT_EQ(code_of([&] { location_of(aws, bad); }), ErrorCode::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace cairn::s3
