// The bytes that the writer makes: those of CPython, with the shortest form of everything.

#include "format/pickle_writer.h"

#include <gtest/gtest.h>

#include "testing/pickle_programs.h"

namespace cairn::pickle {
namespace pickle_writer_test {

using namespace std::literals;

// The opcodes between PROTO and STOP.
template <class Write> std::string opcodes(int protocol, Write write) {
  StringSink sink;
  Writer writer(sink, protocol);
  write(writer);
  writer.finish();
  EXPECT_EQ(sink.text.substr(0, 2), "\x80"s + static_cast<char>(protocol));
  EXPECT_EQ(sink.text.back(), '.');
  return sink.text.substr(2, sink.text.size() - 3);
}

std::string integer(std::int64_t value) {
  return opcodes(2, [&](Writer& w) { w.integer(value); });
}

TEST(PickleWriter, SmallIntegersTakeOneTwoOrFourBytes) {
  EXPECT_EQ(integer(0), "K\0"s);
  EXPECT_EQ(integer(255), "K\xff"s);
  EXPECT_EQ(integer(256), "M\0\1"s);
  EXPECT_EQ(integer(65535), "M\xff\xff"s);
  EXPECT_EQ(integer(65536), "J\0\0\1\0"s);
  EXPECT_EQ(integer(INT32_MAX), "J\xff\xff\xff\x7f"s);
  EXPECT_EQ(integer(-1), "J\xff\xff\xff\xff"s);
  EXPECT_EQ(integer(INT32_MIN), "J\0\0\0\x80"s);
}

TEST(PickleWriter, LargeIntegersTakeTheFewestBytesThatKeepTheSign) {
  for (std::size_t bytes = 5; bytes <= 8; ++bytes) {
    const std::int64_t least = INT64_MIN >> (64 - 8 * bytes);
    const std::int64_t shorter = least >> 8;  // the least of those with one byte less
    for (const std::int64_t value : {least, least + 1, -least - 1, shorter - 1, -shorter}) {
      const std::string text(reinterpret_cast<const char*>(&value), bytes);
      EXPECT_EQ(integer(value), "\x8a"s + static_cast<char>(bytes) + text) << value;
      EXPECT_EQ(value_of(program(integer(value))), Value(value));
    }
  }
}

TEST(PickleWriter, AnIntegerHasAtMost255Bytes) {
  const std::string most(255, '\1');
  EXPECT_EQ(opcodes(2, [&](Writer& w) { w.big_integer(most); }), "\x8a\xff" + most);
  StringSink sink;
  EXPECT_EQ(error_of([&] { Writer(sink, 2).big_integer(most + '\1'); }).code(), ErrorCode::kLimit);
}

TEST(PickleWriter, StringsAreShortFromProtocolFourOn) {
  const auto string = [](int protocol, std::size_t size) {
    return opcodes(protocol, [&](Writer& w) { w.string(std::string(size, 'a')); }).substr(0, 5);
  };
  EXPECT_EQ(string(2, 3), "X\3\0\0\0"s);
  EXPECT_EQ(string(3, 3), "X\3\0\0\0"s);
  EXPECT_EQ(string(4, 3), "\x8c\3aaa"s);
  EXPECT_EQ(string(4, 255),
            "\x8c\xff"
            "aaa"s);
  EXPECT_EQ(string(4, 256), "X\0\1\0\0"s);
}

TEST(PickleWriter, BytesHaveAnOpcodeFromProtocolThreeOn) {
  const auto bytes = [](int protocol, const std::string& data) {
    return opcodes(protocol, [&](Writer& w) { w.bytes(data); });
  };
  EXPECT_EQ(bytes(2, "a\xff"), "c_codecs\nencode\nq\0X\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R"s);
  EXPECT_EQ(bytes(3, "a\xff"), "C\2a\xff"s);
  EXPECT_EQ(bytes(4, "a\xff"), "C\2a\xff"s);
  EXPECT_EQ(bytes(3, std::string(255, 'a')).substr(0, 2), "C\xff"s);
  EXPECT_EQ(bytes(3, std::string(256, 'a')).substr(0, 5), "B\0\1\0\0"s);
}

TEST(PickleWriter, BytesOfProtocolTwoComeBackWhateverTheyAre) {
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  EXPECT_EQ(value_of(program(opcodes(2, [&](Writer& w) { w.bytes(all); }))), Value(Bytes{all}));
}

TEST(PickleWriter, MemoNumbersGrowFromOneByteToFour) {
  for (const int protocol : {2, 4}) {
    Tuple expected;
    const std::string body = opcodes(protocol, [&](Writer& w) {
      w.mark();
      for (int i = 0; i < 600; ++i) w.shared_string(std::to_string(i % 300));
      EXPECT_EQ(w.last_memo(), 299U);
      w.tuple();
    });
    for (int i = 0; i < 600; ++i) expected.items.emplace_back(std::to_string(i % 300));
    EXPECT_EQ(value_of("\x80"s + static_cast<char>(protocol) + body + "."), Value(expected)) << protocol;
    EXPECT_NE(body.find("h\xffj\0\1\0\0j\1\1\0\0"s), std::string::npos) << protocol;
  }
  const std::string put = opcodes(2, [&](Writer& w) {
    for (int i = 0; i < 257; ++i) w.shared_string(std::to_string(i));
  });
  EXPECT_NE(put.find("255q\xff"), std::string::npos);
  EXPECT_TRUE(put.ends_with("256r\0\1\0\0"sv));
}

}  // namespace pickle_writer_test
}  // namespace cairn::pickle
