#include "storage/s3/digest.h"

#include <gtest/gtest.h>

namespace cairn::s3 {
namespace {

TEST(S3Digest, SumsAreThoseOfTheirStandards) {
  EXPECT_EQ(hex(sha256(as_bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(hmac_sha256(as_bytes("Jefe"), "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256({}, "")), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(S3Digest, AnMd5IsOfAllPiecesInOrder) {
  const ByteSpan pieces[] = {as_bytes("mess"), {}, as_bytes("age digest")};
  EXPECT_EQ(md5_base64(pieces), "+WtpfXy3k41SWi8xqvFh0A==");
  EXPECT_EQ(md5_base64({}), "1B2M2Y8AsgTpgAmY7PhCfg==");
}

TEST(S3Digest, Base64IsPaddedAndWithoutLines) {
  EXPECT_EQ(base64({}), "");
  EXPECT_EQ(base64(as_bytes("f")), "Zg==");
  EXPECT_EQ(base64(as_bytes("ab")), "YWI=");
  EXPECT_EQ(base64(as_bytes("foo")), "Zm9v");
  EXPECT_EQ(base64(as_bytes(std::string(60, 'x'))).find('\n'), std::string::npos);
}

TEST(S3Digest, ATimeIsTheSameInAllThreeForms) {
  const auto time = time_of_http("Thu, 29 Feb 2024 23:59:58 GMT");
  ASSERT_TRUE(time);
  EXPECT_EQ(signing_time(*time), "20240229T235958Z");
  EXPECT_EQ(time_of_iso("2024-02-29T23:59:58Z"), time);
  EXPECT_EQ(time_of_iso("2024-02-29T23:59:58+00:00"), time);
  EXPECT_EQ(time_of_iso("2024-02-29T23:59:58.25Z"), *time + std::chrono::milliseconds(250));
  EXPECT_EQ(time_of_iso("2024-02-29T23:59:58.123456789Z"), *time + std::chrono::milliseconds(123));
  EXPECT_EQ(signing_time(*time + std::chrono::milliseconds(999)), "20240229T235958Z");
}

TEST(S3Digest, WhatIsNoTimeIsNone) {
  for (const char* text :
       {"", "Fri", "Fri, 24 May 2013 00:00:00", "Fri, 24 May 2013 00:00:00 CET",
        "Fri, 31 Feb 2013 00:00:00 GMT", "Fri, 24 Mai 2013 00:00:00 GMT", "Fri, 24 May 2013 24:00:00 GMT",
        "Fri, 24 May 2013 00:00:00 GMT ", "Fri, -4 May 2013 00:00:00 GMT", "Friday, 24-May-13 00:00:00 GMT"})
    EXPECT_FALSE(time_of_http(text)) << text;
  for (const char* text : {"", "2013-05-24", "2013-05-24T00:00:00", "2013-13-24T00:00:00Z",
                           "2013-05-24T00:61:00Z", "2013-05-24T00:00:00.Z", "2013-05-24T00:00:00+01:00",
                           "2013-05-24T00:00:00Zx", "+013-05-24T00:00:00Z"})
    EXPECT_FALSE(time_of_iso(text)) << text;
}

}  // namespace
}  // namespace cairn::s3
