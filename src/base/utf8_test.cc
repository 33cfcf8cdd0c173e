#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(Utf8, AsciiOfAnyLengthIsValid) {
  for (std::size_t n = 0; n < 40; ++n) EXPECT_TRUE(is_utf8(std::string(n, 'a'))) << n;
}

TEST(Utf8, SequencesOfTwoToFourBytesAreValid) {
  EXPECT_TRUE(
      is_utf8("gr\xc3\xbc\xc3\x9f"
              "e \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_TRUE(is_utf8("\xf4\x8f\xbf\xbf"));  // U+10FFFF
}

TEST(Utf8, WhatUnicodeForbidsIsNot) {
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "a\xc3("}) {
    EXPECT_FALSE(is_utf8(bad)) << testing::PrintToString(bad);
    EXPECT_FALSE(is_utf8(std::string(13, 'x') + bad)) << testing::PrintToString(bad);
  }
}

TEST(Utf8, BytesOfNoCharacterAreReplaced) {
  EXPECT_EQ(to_utf8("run/\xc3\xa4-7"), "run/\xc3\xa4-7");
  EXPECT_EQ(to_utf8("x\xff/\xc3"), "x\xef\xbf\xbd/\xef\xbf\xbd");
}

TEST(Utf8, EveryByteIsACharacterOfLatin1) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(latin1_to_utf8("a\xff\x80"), "a\xc3\xbf\xc2\x80");
  EXPECT_EQ(latin1_to_utf8(""), "");
  EXPECT_TRUE(is_utf8(latin1_to_utf8(all)));
  EXPECT_EQ(utf8_to_latin1(latin1_to_utf8(all)), all);
  for (const char* other : {"\xc4\x80", "a\xe2\x82\xac", "\xc3", "\x80"})
    EXPECT_FALSE(utf8_to_latin1(other)) << testing::PrintToString(other);
}

}  // namespace
}  // namespace cairn
