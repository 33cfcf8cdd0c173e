#include "testing/s3_server.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "testing/s3_request.h"

namespace cairn {
namespace {

struct Asked {
  std::string method = "GET";
  std::string path;  // "/bucket/key?query"
  std::string body = {};
  std::vector<std::string> headers = {};
  std::string user = {};  // "key:secret": signed by libcurl
  std::string ca_bundle = {};
  std::string base = {};  // in place of the server's endpoint
};
struct Reply {
  CURLcode code = CURLE_OK;
  long status = 0;
  std::string body;
  std::map<std::string, std::string> headers;
};

std::size_t keep(char* bytes, std::size_t size, std::size_t count, void* to) {
  static_cast<std::string*>(to)->append(bytes, size * count);
  return size * count;
}

Reply ask(const S3Server& server, const Asked& asked) {
  Reply reply;
  std::string head;
  CURL* const curl = curl_easy_init();
  const std::string url = (asked.base.empty() ? server.endpoint() : asked.base) + asked.path;
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, asked.method.c_str());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply.body);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, keep);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &head);
  if (asked.method == "HEAD") curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  if (asked.method == "PUT" || asked.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(asked.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, asked.body.c_str());
  }
  curl_slist* headers = nullptr;
  for (const std::string& header : asked.headers) headers = curl_slist_append(headers, header.c_str());
  if (!asked.user.empty()) {
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, "aws:amz:us-east-1:s3");
    curl_easy_setopt(curl, CURLOPT_USERPWD, asked.user.c_str());
    headers = curl_slist_append(headers, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  if (!asked.ca_bundle.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, asked.ca_bundle.c_str());
  reply.code = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
  for (std::size_t at = 0; at < head.size();) {
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string line = head.substr(at, end - at);
    if (const std::size_t colon = line.find(": "); colon != std::string::npos)
      reply.headers[loopback::in_lower_case(line.substr(0, colon))] = line.substr(colon + 2);
    at = end + 2;
  }
  return reply;
}

std::string code_of(const Reply& reply) {
  const auto codes = loopback::texts_of(reply.body, "Code");
  return codes.empty() ? fmt::format("status {}", reply.status) : codes[0];
}

std::string begin_upload(const S3Server& server, const std::string& key) {
  return loopback::texts_of(ask(server, {.method = "POST", .path = "/bucket/" + key + "?uploads="}).body,
                            "UploadId")
      .at(0);
}
std::string part_xml(int number, const Reply& part) {
  return fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number,
                     part.headers.at("etag"));
}

TEST(S3Server, KeepsWhatIsPutAndGivesRangesOfIt) {
  S3Server server;
  const Reply put = ask(server, {.method = "PUT",
                                 .path = "/bucket/a%2Fb%20%2B",
                                 .body = "0123456789",
                                 .headers = {"x-amz-meta-Step: 7"}});
  EXPECT_EQ(put.status, 200);
  EXPECT_FALSE(put.headers.at("x-amz-request-id").empty());
  EXPECT_FALSE(put.headers.at("date").empty());
  const Reply whole = ask(server, {.path = "/bucket/a/b%20%2b"});
  EXPECT_EQ(whole.body, "0123456789");
  EXPECT_EQ(whole.headers.at("x-amz-meta-step"), "7");
  EXPECT_EQ(whole.headers.at("etag"), "\"781e5e245d69b566979b86e28d23f2c7\"");  // its MD5
  const auto range = [&](const std::string& bytes) {
    return ask(server, {.path = "/bucket/a/b%20%2B", .headers = {"Range: bytes=" + bytes}});
  };
  EXPECT_EQ(range("2-4").body, "234");
  EXPECT_EQ(range("2-4").status, 206);
  EXPECT_EQ(range("2-4").headers.at("content-range"), "bytes 2-4/10");
  EXPECT_EQ(range("8-40").body, "89");
  EXPECT_EQ(range("-3").body, "789");
  EXPECT_EQ(range("10-11").status, 416);
  EXPECT_EQ(ask(server, {.method = "HEAD", .path = "/bucket/a/b%20%2B"}).headers.at("content-length"), "10");
  EXPECT_EQ(ask(server, {.path = "/bucket/a/b%20%2B", .headers = {"If-Match: \"other\""}}).status, 412);
  EXPECT_EQ(server.objects().at("a/b +").metadata.at("step"), "7");
  EXPECT_EQ(ask(server, {.method = "DELETE", .path = "/bucket/a/b%20%2B"}).status, 204);
  EXPECT_EQ(code_of(ask(server, {.path = "/bucket/a/b%20%2B"})), "NoSuchKey");
  EXPECT_EQ(code_of(ask(server, {.path = "/other/a"})), "NoSuchBucket");
  EXPECT_EQ(server.stored_bytes(), 0);
  EXPECT_EQ(server.requests("PutObject"), 1);
}

TEST(S3Server, LetsOneOfManyWritersOfANewKeyWin) {
  S3Server server;
  std::atomic<int> won = 0;
  std::atomic<int> lost = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 20; ++i)
    writers.emplace_back([&] {
      const Reply reply =
          ask(server, {.method = "PUT", .path = "/bucket/new", .body = "x", .headers = {"If-None-Match: *"}});
      ++(reply.status == 200 ? won : lost);
      EXPECT_TRUE(reply.status == 200 || reply.status == 412) << reply.status;
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(lost, 19);
  S3Server without({.no_conditions = true});
  for (int i = 0; i < 2; ++i) {
    const Asked put = {.method = "PUT", .path = "/bucket/new", .body = "x", .headers = {"If-None-Match: *"}};
    EXPECT_EQ(ask(without, put).status, 200);
  }
}

TEST(S3Server, PutsAnObjectTogetherFromItsParts) {
  S3Server server({.least_part = 4});
  const std::string id = begin_upload(server, "big");
  const auto part = [&](int number, const std::string& body) {
    return ask(server, {.method = "PUT",
                        .path = fmt::format("/bucket/big?partNumber={}&uploadId={}", number, id),
                        .body = body});
  };
  const auto complete = [&](const std::string& list) {
    return ask(server, {.method = "POST",
                        .path = "/bucket/big?uploadId=" + id,
                        .body = "<CompleteMultipartUpload>" + list + "</CompleteMultipartUpload>"});
  };
  const std::string third = part_xml(3, part(3, "end"));
  const std::string small = part_xml(1, part(1, "abc"));
  EXPECT_EQ(code_of(complete(small)), "InvalidPart");  // one is left out
  EXPECT_EQ(code_of(complete(small + third)), "EntityTooSmall");
  const std::string first = part_xml(1, part(1, "abcd"));
  EXPECT_EQ(code_of(complete(small + third)), "InvalidPart");
  EXPECT_EQ(server.uploads(), 1);
  EXPECT_TRUE(server.keys().empty());
  const Reply parts = ask(server, {.path = "/bucket/big?uploadId=" + id});
  EXPECT_EQ(loopback::texts_of(parts.body, "Size"), (std::vector<std::string>{"4", "3"}));
  const Reply done = complete(third + first);
  EXPECT_EQ(loopback::texts_of(done.body, "ETag"), std::vector<std::string>{""});
  EXPECT_EQ(server.objects().at("big").bytes, "abcdend");
  EXPECT_EQ(loopback::texts_of(complete(third + first).body, "ETag"),
            std::vector<std::string>{server.objects().at("big").etag});
  EXPECT_EQ(complete(first).status, 500);
  EXPECT_EQ(ask(server, {.path = "/bucket/big", .headers = {"Range: bytes=2-5"}}).body, "cden");
  const std::string other = begin_upload(server, "other");
  EXPECT_EQ(loopback::texts_of(ask(server, {.path = "/bucket?uploads="}).body, "UploadId"),
            std::vector<std::string>{other});
  EXPECT_EQ(ask(server, {.method = "DELETE", .path = "/bucket/other?uploadId=" + other}).status, 204);
  EXPECT_EQ(code_of(ask(server, {.method = "DELETE", .path = "/bucket/other?uploadId=" + other})),
            "NoSuchUpload");
  EXPECT_EQ(server.stored_bytes(), 7);
}

TEST(S3Server, ListsPageByPageWithFolders) {
  S3Server server;
  for (const char* key : {"a/1", "a/2", "b", "c d/1", "c d/2", "e"}) server.put(key, key);
  std::vector<std::string> keys;
  std::vector<std::string> folders;
  std::string token;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const Reply page =
        ask(server,
            {.path = "/bucket?list-type=2&delimiter=%2F&encoding-type=url&max-keys=2&prefix=" +
                     (token.empty() ? "" : "&continuation-token=" + loopback::to_percents(token, false))});
    for (const std::string& key : loopback::texts_of(page.body, "Key")) keys.push_back(key);
    for (const std::string& folder : loopback::texts_of(page.body, "CommonPrefixes"))
      folders.push_back(folder);
    more = loopback::texts_of(page.body, "IsTruncated").at(0) == "true";
    if (more) token = loopback::texts_of(page.body, "NextContinuationToken").at(0);
  }
  EXPECT_EQ(pages, 2);
  EXPECT_EQ(keys, (std::vector<std::string>{"b", "e"}));
  EXPECT_EQ(folders, (std::vector<std::string>{"<Prefix>a%2F</Prefix>", "<Prefix>c%20d%2F</Prefix>"}));
  const Reply removed =
      ask(server, {.method = "POST",
                   .path = "/bucket?delete=",
                   .body = "<Delete><Object><Key>a/1</Key></Object><Object><Key>no</Key></Object></Delete>"});
  EXPECT_EQ(loopback::texts_of(removed.body, "Key"), (std::vector<std::string>{"a/1", "no"}));
  EXPECT_EQ(server.keys().size(), 5);
}

TEST(S3Server, CopiesWithTheOldMetadataOrWithNew) {
  S3Server server;
  ask(server, {.method = "PUT", .path = "/bucket/from", .body = "x", .headers = {"x-amz-meta-a: 1"}});
  ask(server, {.method = "PUT", .path = "/bucket/same", .headers = {"x-amz-copy-source: /bucket/from"}});
  ask(server, {.method = "PUT",
               .path = "/bucket/new",
               .headers = {"x-amz-copy-source: bucket/from", "x-amz-metadata-directive: REPLACE",
                           "x-amz-meta-b: 2"}});
  EXPECT_EQ(server.objects().at("same").metadata, (std::map<std::string, std::string>{{"a", "1"}}));
  EXPECT_EQ(server.objects().at("new").metadata, (std::map<std::string, std::string>{{"b", "2"}}));
  EXPECT_EQ(
      code_of(ask(server,
                  {.method = "PUT", .path = "/bucket/from", .headers = {"x-amz-copy-source: /bucket/from"}})),
      "InvalidRequest");
}

TEST(S3Server, LooksAtMoreConditionsWhereItIsAskedTo) {
  for (const bool all : {false, true}) {
    S3Server server({.all_conditions = all});
    const std::string id = begin_upload(server, "a");
    const std::string part = part_xml(
        1, ask(server, {.method = "PUT", .path = "/bucket/a?partNumber=1&uploadId=" + id, .body = "new"}));
    server.put("a", "old");
    const Asked complete = {
        .method = "POST", .path = "/bucket/a?uploadId=" + id, .body = part, .headers = {"If-None-Match: *"}};
    EXPECT_EQ(ask(server, complete).status, all ? 412 : 200);
    const Asked copy = {.method = "PUT",
                        .path = "/bucket/b",
                        .headers = {"x-amz-copy-source: /bucket/a", "x-amz-copy-source-if-match: \"other\""}};
    EXPECT_EQ(ask(server, copy).status, all ? 412 : 200);
    EXPECT_EQ(server.objects().at("a").bytes, all ? "old" : "new");
  }
}

TEST(S3Server, RefusesWhatIsNotSignedWithItsKeys) {
  S3Server server({.access_key = "key", .secret_key = "secret"});
  const auto put = [&](const std::string& user) {
    return ask(server, {.method = "PUT", .path = "/bucket/a%20b?x-id=PutObject", .body = "x", .user = user});
  };
  EXPECT_EQ(put("key:secret").status, 200);
  EXPECT_EQ(code_of(put("key:wrong")), "SignatureDoesNotMatch");
  EXPECT_EQ(code_of(put("other:secret")), "InvalidAccessKeyId");
  EXPECT_EQ(code_of(put("")), "AccessDenied");
  server.set_clock_ahead(std::chrono::minutes(16));
  EXPECT_EQ(code_of(put("key:secret")), "RequestTimeTooSkewed");
  server.set_clock_ahead(std::chrono::minutes(14));
  EXPECT_EQ(put("key:secret").status, 200);
  server.set_keys("second", "secret", "");
  EXPECT_EQ(code_of(put("key:secret")), "ExpiredToken");
  EXPECT_EQ(put("second:secret").status, 200);
  S3Server elsewhere({.access_key = "key", .secret_key = "secret", .region = "eu-west-1"});
  const Reply reply = ask(elsewhere, {.path = "/bucket/a", .user = "key:secret"});
  EXPECT_EQ(code_of(reply), "AuthorizationHeaderMalformed");
  EXPECT_EQ(loopback::texts_of(reply.body, "Region"), std::vector<std::string>{"eu-west-1"});
}

// Amazon's published examples.
TEST(S3Server, TakesTheSignaturesThatAmazonPublished) {
  const loopback::Keys keys = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  const auto now = std::chrono::sys_days(std::chrono::May / 24 / 2013);
  const auto check = [&](const std::string& target, const std::string& header, const std::string& names,
                         const std::string& signature) {
    const std::string head = fmt::format(
        "{} HTTP/1.1\r\nhost: examplebucket.s3.amazonaws.com\r\nx-amz-date: 20130524T000000Z\r\n"
        "x-amz-content-sha256: {}\r\n{}authorization: AWS4-HMAC-SHA256 "
        "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
        "aws4_request,SignedHeaders={},Signature={}\r\n\r\n",
        target, loopback::hex(loopback::sha256(target.starts_with("PUT") ? "Welcome to Amazon S3." : "")),
        header, names, signature);
    loopback::check_signature(loopback::incoming_of(head), keys, "", now);
  };
  const std::string usual = "host;x-amz-content-sha256;x-amz-date";
  check("GET /test.txt", "range: bytes=0-9\r\n", "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  check("PUT /test%24file.text",
        "date: Fri, 24 May 2013 00:00:00 GMT\r\nx-amz-storage-class: REDUCED_REDUNDANCY\r\n",
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  check("GET /?lifecycle", "", usual, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  check("GET /?max-keys=2&prefix=J", "", usual,
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  EXPECT_THROW(check("GET /?max-keys=3&prefix=J", "", usual,
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
               loopback::Refusal);
  EXPECT_THROW(check("GET /?lifecycle", "x-amz-acl: private\r\n", usual,
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
               loopback::Refusal);
}

TEST(S3Server, DoesWrongWhatATestAsksFor) {
  S3Server server;
  server.put("a", "0123456789");
  const Asked put = {.method = "PUT", .path = "/bucket/new", .body = "x", .headers = {"If-None-Match: *"}};
  const Asked get = {.path = "/bucket/a", .headers = {"Range: bytes=0-4"}};
  const auto with = [&](const S3Fault& fault, const Asked& asked) {
    server.set_fault([fault](const S3Request&) { return fault; });
    return ask(server, asked);
  };
  EXPECT_NE(with({.drop = true}, put).code, CURLE_OK);
  EXPECT_EQ(server.keys().size(), 1);
  EXPECT_EQ(code_of(with({.status = 503}, put)), "SlowDown");
  EXPECT_EQ(server.keys().size(), 1);
  EXPECT_NE(with({.drop = true, .carried_out = true}, put).code, CURLE_OK);
  EXPECT_EQ(server.keys().size(), 2);
  server.remove("new");
  EXPECT_EQ(with({.twice = true}, put).status, 412);
  EXPECT_EQ(server.keys().size(), 2);
  const Reply hidden = with({.status = 200, .code = "InternalError"}, get);
  EXPECT_EQ(hidden.status, 200);
  EXPECT_EQ(code_of(hidden), "InternalError");
  EXPECT_EQ(with({.truncate = 2}, get).code, CURLE_PARTIAL_FILE);
  EXPECT_EQ(with({.wrong_range = true}, get).headers.at("content-range"), "bytes 1-5/11");
  EXPECT_EQ(with({.corrupt = true}, get).body, "01334");
  EXPECT_EQ(
      with({.headers = {{"Retry-After", "7"}}, .bytes_per_second = 1000}, get).headers.at("retry-after"),
      "7");
  EXPECT_EQ(with({.raw = "HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:1/\r\n\r\n"}, get).status, 307);
  EXPECT_EQ(with({}, get).body, "01234");
}

TEST(S3Server, TellsTheFaultWhatWasAsked) {
  S3Server server;
  std::vector<S3Request> seen;
  server.set_fault([&](const S3Request& request) {
    seen.push_back(request);
    return S3Fault{};
  });
  for (int i = 0; i < 2; ++i) ask(server, {.method = "PUT", .path = "/bucket/a%2Fb?x=%2F+", .body = "abc"});
  ASSERT_EQ(seen.size(), 2);
  EXPECT_EQ(seen[1].kind, "PutObject");
  EXPECT_EQ(seen[1].key, "a/b");
  EXPECT_EQ(seen[1].query.at("x"), "/ ");
  EXPECT_EQ(seen[1].size, 3);
  EXPECT_EQ(seen[1].number_of_kind, 2);
  EXPECT_EQ(seen[1].in_flight, 1);
}

TEST(S3Server, RefusesWhatDoesNotFit) {
  S3Server server({.quota = 10});
  const auto put = [&](const std::string& key, const std::string& body,
                       std::vector<std::string> headers = {}) {
    return ask(server,
               {.method = "PUT", .path = "/bucket/" + key, .body = body, .headers = std::move(headers)});
  };
  EXPECT_EQ(put("a", "123456").status, 200);
  EXPECT_EQ(code_of(put("b", "123456")), "QuotaExceeded");
  EXPECT_EQ(code_of(put("b", std::string(2 << 20, 'x'))), "QuotaExceeded");
  EXPECT_EQ(put("a", "1234567890").status, 200);
  EXPECT_EQ(server.keys(), std::vector<std::string>{"a"});
  EXPECT_EQ(code_of(put("b", "", {"Content-MD5: AAAAAAAAAAAAAAAAAAAAAA=="})), "BadDigest");
  EXPECT_EQ(code_of(put("b", "", {"x-amz-content-sha256: " + std::string(64, '0')})),
            "XAmzContentSHA256Mismatch");
  EXPECT_EQ(code_of(put(std::string(1025, 'k'), "")), "InvalidObjectName");
  EXPECT_EQ(code_of(put("b", "", {"Transfer-Encoding: chunked"})), "MissingContentLength");
}

TEST(S3Server, SpeaksTlsToWhoHasItsCertificate) {
  S3Server server({.tls = true});
  const std::string body(5 << 20, 'x');  // with "Expect: 100-continue"
  EXPECT_EQ(ask(server, {.method = "PUT", .path = "/bucket/a", .body = body, .ca_bundle = server.ca_bundle()})
                .status,
            200);
  EXPECT_EQ(ask(server, {.path = "/bucket/a", .ca_bundle = server.ca_bundle()}).body, body);
  EXPECT_EQ(ask(server, {.path = "/bucket/a"}).code, CURLE_PEER_FAILED_VERIFICATION);
}

TEST(S3Server, KnowsABucketByItsHost) {
  S3Server server;
  server.put("a/b", "x");
  const std::string base = fmt::format("http://bucket.localhost:{}", server.port());
  EXPECT_EQ(ask(server, {.path = "/a/b", .base = base}).body, "x");
  EXPECT_EQ(ask(server, {.path = "/bucket/a/b", .headers = {"Host: s3.localhost"}}).body, "x");
  EXPECT_EQ(ask(server, {.path = "/a/b", .headers = {"Host: bucket.s3.localhost:1"}}).body, "x");
}

TEST(S3Server, EndsWhileClientsWait) {
  auto server = std::make_unique<S3Server>();
  server->put("a", "x");
  std::atomic<bool> asked = false;
  server->set_fault([&](const S3Request&) {
    asked = true;
    return S3Fault{.delay = std::chrono::hours(1)};
  });
  std::thread client([&] { EXPECT_NE(ask(*server, {.path = "/bucket/a"}).code, CURLE_OPERATION_TIMEDOUT); });
  while (!asked) std::this_thread::yield();
  server.reset();
  client.join();
}

}  // namespace
}  // namespace cairn
