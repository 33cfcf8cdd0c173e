#include "storage/s3/sign.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "storage/s3/digest.h"

namespace cairn::s3 {
namespace {

// AWS's published examples: "Examples: Signature Calculations" of the S3 API reference.
const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", {}};
constexpr std::string_view kEmptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const Time kDay = *time_of_iso("2013-05-24T00:00:00Z");

std::string value_of(const Headers& headers, std::string_view name) {
  for (const auto& [n, value] : headers)
    if (n == name) return value;
  return "none";
}

struct Asked {
  std::string method = "GET";
  std::string path = "/";
  Query query = {};
  Headers headers = {};  // besides host
  std::string payload = std::string(kEmptySum);
};

Headers headers_of(const Asked& asked, const Credentials& credentials = kExample, Time now = kDay) {
  Headers headers = asked.headers;
  headers.emplace_back("Host", "examplebucket.s3.amazonaws.com");
  return signature_headers({asked.method, asked.path, asked.query, headers, asked.payload}, credentials,
                           "us-east-1", now);
}

std::string signature_of(const Asked& asked, const Credentials& credentials = kExample, Time now = kDay) {
  const std::string text = value_of(headers_of(asked, credentials, now), "authorization");
  return text.substr(text.find("Signature=") + 10);
}

TEST(S3Sign, ARangedGetIsSignedAsAwsPublishedIt) {
  const Headers headers = headers_of({.path = "/test.txt", .headers = {{"range", "bytes=0-9"}}});
  EXPECT_EQ(value_of(headers, "authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(value_of(headers, "x-amz-date"), "20130524T000000Z");
  EXPECT_EQ(value_of(headers, "x-amz-content-sha256"), kEmptySum);
  EXPECT_EQ(value_of(headers, "x-amz-security-token"), "none");
}

TEST(S3Sign, APutIsSignedAsAwsPublishedIt) {
  const Asked put{"PUT",
                  percent_encoded("/test$file.text", true),
                  {},
                  {{"x-amz-storage-class", "REDUCED_REDUNDANCY"}, {"Date", "Fri, 24 May 2013 00:00:00 GMT"}},
                  hex(sha256(as_bytes("Welcome to Amazon S3.")))};
  EXPECT_EQ(put.path, "/test%24file.text");
  EXPECT_EQ(signature_of(put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(S3Sign, AQueryWithoutAValueIsSignedAsAwsPublishedIt) {
  EXPECT_EQ(signature_of({.query = {{"lifecycle", ""}}}),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(S3Sign, AListingIsSignedAsAwsPublishedItInAnyOrder) {
  for (const Query& query :
       {Query{{"max-keys", "2"}, {"prefix", "J"}}, Query{{"prefix", "J"}, {"max-keys", "2"}}})
    EXPECT_EQ(signature_of({.query = query}),
              "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(S3Sign, ASessionTokenIsSentAndSigned) {
  Credentials lent = kExample;
  lent.session_token = "the/token+of=us";
  const Headers headers = headers_of({}, lent);
  EXPECT_EQ(value_of(headers, "x-amz-security-token"), "the/token+of=us");
  EXPECT_NE(value_of(headers, "authorization").find("x-amz-date;x-amz-security-token,"), std::string::npos);
  EXPECT_NE(signature_of({}, lent), signature_of({}));
}

TEST(S3Sign, WithoutAHashThePayloadIsSaidToBeUnsigned) {
  const Query query;
  const Headers host = {{"host", "b"}};
  EXPECT_EQ(value_of(signature_headers({"PUT", "/k", query, host}, kExample, "us-east-1", kDay),
                     "x-amz-content-sha256"),
            "UNSIGNED-PAYLOAD");
}

TEST(S3Sign, EveryByteButTheUnreservedOnesIsEncodedOnce) {
  EXPECT_EQ(percent_encoded("AZaz09-._~", false), "AZaz09-._~");
  EXPECT_EQ(percent_encoded("a b+c/d", false), "a%20b%2Bc%2Fd");
  EXPECT_EQ(percent_encoded("/run//../a%2Fb/./é\n", true), "/run//../a%252Fb/./%C3%A9%0A");
  EXPECT_EQ(percent_encoded(std::string_view("\0\xff*':!()", 8), true), "%00%FF%2A%27%3A%21%28%29");
}

TEST(S3Sign, AQueryIsSortedAfterItWasEncodedAndEveryNameHasItsSign) {
  EXPECT_EQ(query_string({}), "");
  EXPECT_EQ(query_string({{"uploads", ""}}), "uploads=");
  EXPECT_EQ(query_string({{"b", "2"}, {"a", "z"}, {"a", "/ y"}, {"a+", "é"}, {"B", ""}}),
            "B=&a=%2F%20y&a=z&a%2B=%C3%A9&b=2");
}

// Numbers from an independent run of the same steps in Python's hmac and hashlib.
TEST(S3Sign, OddKeysPathsAndHeadersAreSignedAsOthersSignThem) {
  const Credentials odd{"AK", "s/e+c r\xc3\xa9t=", "t", {}};
  const Asked asked{
      .method = "PUT",
      .path = percent_encoded("/b//../a + \xc3\xa9", true),
      .query = {{"uploadId", "x/y+z="}, {"partNumber", "7"}, {"acl", ""}},
      .headers = {{"X-Amz-Meta-B", "  two   words\t"}, {"x-amz-meta-a", "1"}, {"X-AMZ-META-A", " 2 "}},
      .payload = "UNSIGNED-PAYLOAD"};
  EXPECT_EQ(signature_of(asked, odd), "36599caf517a4f2ab9912146645046c040d3d7dfb14ad3e0c9aa392e78ee278d");
}

TEST(S3Sign, SpacesAroundAndInsideAValueAndTheCaseOfANameDoNotMatter) {
  EXPECT_EQ(signature_of({.headers = {{"x-amz-meta-a", "one two"}}}),
            signature_of({.headers = {{"X-Amz-Meta-A", " \tone   two "}}}));
  EXPECT_NE(signature_of({.headers = {{"x-amz-meta-a", "one two"}}}),
            signature_of({.headers = {{"x-amz-meta-a", "onetwo"}}}));
}

TEST(S3Sign, EachDayAndEachSecretHasItsOwnKey) {
  const std::string first = signature_of({});
  Credentials other = kExample;
  other.secret_key += "x";
  EXPECT_NE(signature_of({}, other), first);
  EXPECT_NE(signature_of({}, kExample, kDay + std::chrono::hours(24)), first);
  for (int day = 0; day < 20; ++day) signature_of({}, kExample, kDay + std::chrono::hours(24 * day));
  EXPECT_EQ(signature_of({}), first);  // whether or not its key was kept
}

TEST(S3Sign, ManyThreadsSignAtOnce) {
  const std::string right = signature_of({});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        if (i % 3 == t % 3) signature_of({}, kExample, kDay + std::chrono::hours(24 * (i % 11)));
        if (signature_of({}) != right) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cairn::s3
