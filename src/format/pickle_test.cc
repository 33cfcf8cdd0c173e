#include "format/pickle.h"

#include <gtest/gtest.h>

#include "format/pickle_writer.h"
#include "testing/pickle_programs.h"

namespace cairn::pickle {
namespace pickle_test {

using namespace std::string_literals;

TEST(Pickle, ReadsNumbersOfEverySize) {
  EXPECT_EQ(value_of(program("K\x07")), Value(7));
  EXPECT_EQ(value_of(program("M\xff\xff")), Value(65535));
  EXPECT_EQ(value_of(program("J\xff\xff\xff\xff")), Value(-1));
  EXPECT_EQ(value_of(program("\x8a\x05\x00\x00\x00\x00\x01"s)), Value(std::int64_t{1} << 32));
  EXPECT_EQ(value_of(program("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s)), Value(INT64_MIN));
  EXPECT_EQ(value_of(program("\x8a\x00"s)), Value(0));
  EXPECT_EQ(value_of(program("G\x3f\xb9\x99\x99\x99\x99\x99\x9a"s)), Value(0.1));
}

TEST(Pickle, KeepsIntegersBeyond64BitsExactly) {
  const std::string bytes = "\x00\x00\x00\x00\x00\x00\x00\x00\x01"s;
  EXPECT_EQ(value_of(program("\x8a\x09" + bytes)), Value(BigInt{bytes}));
}

TEST(Pickle, BytesThatRepeatTheSignChangeNothing) {
  EXPECT_EQ(value_of(program("\x8a\x0a\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00"s)), Value(7));
  EXPECT_EQ(value_of(program("\x8a\x09" + std::string(9, '\xff'))), Value(-1));
  EXPECT_EQ(value_of(program("\x8a\x09" + std::string(8, '\xff') + '\0')),
            Value(BigInt{std::string(8, '\xff') + '\0'}));
}

TEST(Pickle, ReadsContainersAndConstants) {
  EXPECT_EQ(value_of(program("(NK\x01\x88\x89X\x02\x00\x00\x00hit"s)),
            Value(Tuple{{None{}, 1, true, false, "hi"}}));
  EXPECT_EQ(value_of(program("](K\x01K\x02"
                             "eK\x03"
                             "a"s)),
            Value(List{1, 2, 3}));
  EXPECT_EQ(value_of(program("}X\x01\x00\x00\x00"
                             "aK\x01sK\x02K\x03s"s)),
            Value(Dict{{"a", 1}, {2, 3}}));
}

TEST(Pickle, MemoFetchesWhatWasPut) {
  EXPECT_EQ(value_of(program("]q\x00K\x01"
                             "ah\x00\x86"s)),
            Value(Tuple{{List{1}, List{1}}}));
}

TEST(Pickle, ProtocolTwoBytesComeBackAsBytes) {
  EXPECT_EQ(value_of(program("c_codecs\nencode\nX\x03\x00\x00\x00"
                             "a\xc3\xbf"
                             "X\x06\x00\x00\x00latin1\x86R"s)),
            Value(Bytes{"a\xff"}));
}

TEST(Pickle, UnknownObjectsAreKeptAsTheirOwnPickle) {
  const Value v = value_of(program("cmy.module\nThing\nK\x01\x85R}X\x01\x00\x00\x00xK\x02sb"s));
  ASSERT_TRUE(v.is<Opaque>());
  EXPECT_EQ(v.get<Opaque>().class_name, "my.module.Thing");
  // It reads back as the same description.
  EXPECT_EQ(value_of(v.get<Opaque>().pickle), v);
}

TEST(Pickle, BytesAndSetsInUnknownObjectsStayTheSameBytes) {
  const Value v =
      value_of(program("}(G\x40\x04\x00\x00\x00\x00\x00\x00"
                       "C\x01"
                       "aK\x01"
                       "C\x01"
                       "bK\x02\x8f(K\x01\x90u"s));  // {2.5: b"a", 1: b"b", 2: {1}}
  ASSERT_TRUE(v.is<Opaque>());
  EXPECT_EQ(value_of(v.get<Opaque>().pickle), v);
}

TEST(Pickle, NothingIsCalledWhateverItsName) {
  const Value v = value_of(program("cos\nsystem\nX\x02\x00\x00\x00id\x85R"s));
  ASSERT_TRUE(v.is<Opaque>());
  EXPECT_EQ(v.get<Opaque>().class_name, "os.system");
}

TEST(Pickle, OrderedDictIsADict) {
  EXPECT_EQ(value_of(program("ccollections\nOrderedDict\n)RX\x01\x00\x00\x00"
                             "aK\x01s"s)),
            Value(Dict{{"a", 1}}));
}

TEST(Pickle, RefusesBrokenPrograms) {
  EXPECT_EQ(refusal(""), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal("N."), ErrorCode::kUnsupported);          // no PROTO
  EXPECT_EQ(refusal("\x80\x01N."), ErrorCode::kUnsupported);  // protocol 1
  EXPECT_EQ(refusal("\x80\x06N."), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal("\x80\x02N"), ErrorCode::kCorrupt);     // no STOP
  EXPECT_EQ(refusal("\x80\x02N.N."), ErrorCode::kCorrupt);  // two programs
  EXPECT_EQ(refusal(program("NN")), ErrorCode::kCorrupt);   // two values left
  EXPECT_EQ(refusal(program("")), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(program("\x86")), ErrorCode::kCorrupt);     // stack underflow
  EXPECT_EQ(refusal(program("t")), ErrorCode::kCorrupt);        // no mark
  EXPECT_EQ(refusal(program("N(N")), ErrorCode::kCorrupt);      // mark left open
  EXPECT_EQ(refusal(program("NNa")), ErrorCode::kCorrupt);      // APPEND to None
  EXPECT_EQ(refusal(program(")NNs")), ErrorCode::kCorrupt);     // SETITEM on a tuple
  EXPECT_EQ(refusal(program("}(Nu")), ErrorCode::kCorrupt);     // key without a value
  EXPECT_EQ(refusal(program("K\x01Nb")), ErrorCode::kCorrupt);  // BUILD on a number
  EXPECT_EQ(refusal(program("h\x05")), ErrorCode::kCorrupt);    // memo never put
  EXPECT_EQ(refusal(program("Nq\x00"
                            "0q\x00"s)),
            ErrorCode::kUnsupported);                                // POP
  EXPECT_EQ(refusal(program("Nq\x00q\x00"s)), ErrorCode::kCorrupt);  // one number twice
  EXPECT_EQ(refusal(program("X\xff\x00\x00\x00"
                            "a"s)),
            ErrorCode::kCorrupt);                                              // string past the end
  EXPECT_EQ(refusal(program("X\x01\x00\x00\x00\xff"s)), ErrorCode::kCorrupt);  // not UTF-8
  EXPECT_EQ(refusal(program("\xfe")), ErrorCode::kCorrupt);                    // no opcode
  EXPECT_EQ(refusal(program("cos\nsys")), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal("\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N."s),
            ErrorCode::kCorrupt);  // frame past the end
}

// A FRAME of `length` bytes.
std::string frame(char length) { return "\x95"s + length + std::string(7, '\0'); }

TEST(Pickle, OpcodesMayFollowAFrameButNotCrossItsEnd) {
  const std::string text = "\x8c\x05hello\x94."s;
  for (const char length : {0, 7, 8, 9})
    EXPECT_NO_THROW(parse("\x80\x04"s + frame(length) + text)) << int{length};
  for (const char length : {1, 2, 6, 10})
    EXPECT_EQ(refusal("\x80\x04"s + frame(length) + text), ErrorCode::kCorrupt) << int{length};
  EXPECT_NO_THROW(parse("\x80\x04"s + frame(1) + "(" + frame(1) + "t."));
  EXPECT_EQ(refusal("\x80\x04"s + frame(10) + "(" + frame(1) + "t."), ErrorCode::kCorrupt);  // nested
  EXPECT_EQ(refusal("\x80\x04"s + frame(5) + "(" + frame(1) + "t."), ErrorCode::kCorrupt);  // ends in a FRAME
}

TEST(Pickle, CallingAPlainValueIsCorruptAndCallingAnObjectUnsupported) {
  EXPECT_EQ(refusal(program("K\x01)R")), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(program("X\x01\x00\x00\x00"
                            "a)\x81"s)),
            ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(program("ca\nB\n)R)R")), ErrorCode::kUnsupported);
}

TEST(Pickle, RefusesOpcodesThatDoMoreThanData) {
  for (const char* op : {"0", "1", "2", "I1\n", "L1L\n", "F1\n", "S'a'\n", "V1\n", "d", "l", "o", "P1\n",
                         "ios\nsystem\n", "\x82\x01", "\x92", "\x8b\x00\x00\x00\x00", "\x97", "\x98"}) {
    EXPECT_EQ(refusal(program(op)), ErrorCode::kUnsupported) << testing::PrintToString(op);
  }
  EXPECT_EQ(refusal(program("NQ"), Dialect::kMetadata), ErrorCode::kUnsupported);
}

TEST(Pickle, LimitsHoldOnBothSides) {
  Limits limits;
  limits.depth = 3;
  limits.torch_string_bytes = 4;
  limits.pickle_stack = 5;
  limits.memo_slack = 2;
  EXPECT_NO_THROW(parse(program("(((ttt"), Dialect::kTorch, limits));
  EXPECT_EQ(refusal(program("((((tttt"), Dialect::kTorch, limits), ErrorCode::kLimit);
  EXPECT_NO_THROW(parse(program("X\x04\x00\x00\x00"
                                "abcd"s),
                        Dialect::kTorch, limits));
  EXPECT_EQ(refusal(program("X\x05\x00\x00\x00"
                            "abcde"s),
                    Dialect::kTorch, limits),
            ErrorCode::kLimit);
  EXPECT_NO_THROW(parse(program("(NNNNNt"), Dialect::kMetadata, limits));
  EXPECT_EQ(refusal(program("(NNNNNNt"), Dialect::kMetadata, limits), ErrorCode::kLimit);
  EXPECT_NO_THROW(parse(program("(NNNNNNt"), Dialect::kTorch, limits));
  EXPECT_NO_THROW(parse(program("Nq\x02"), Dialect::kTorch, limits));
  EXPECT_EQ(refusal(program("Nq\x03"), Dialect::kTorch, limits), ErrorCode::kLimit);
}

TEST(Pickle, WalkingIsBoundedWhateverIsShared) {
  // Each tuple holds the one before it twice: 2^40 leaves in 200 bytes.
  std::string body = "N";
  for (char i = 0; i < 40; ++i) body += "q"s + i + "h" + i + "\x86";
  EXPECT_EQ(error_of([&] { value_of(program(body)); }).code(), ErrorCode::kLimit);
  // A list that holds itself.
  EXPECT_EQ(error_of([&] {
              value_of(
                  program("]q\x00h\x00"
                          "a"s));
            }).code(),
            ErrorCode::kLimit);
}

TEST(Pickle, ErrorsNameTheOffset) {
  EXPECT_EQ(error_of([] { parse(program("NN0")); }).offset(), 4U);
}

TEST(PickleWriter, WhatItWritesReadsBack) {
  const Value all =
      Dict{{"none", None{}},
           {"true", true},
           {"ints", List{0, 255, 256, 65535, 65536, -1, std::int64_t{INT32_MAX}, std::int64_t{INT32_MAX} + 1,
                         std::int64_t{INT32_MIN} - 1, INT64_MAX, INT64_MIN}},
           {"big", BigInt{std::string(20, '\x01')}},
           {"real", List{0.0, -1.5, 1e300}},
           {"text",
            "gr\xc3\xbc"
            "n"},
           {"bytes", Bytes{"\x00\xff\x80"s}},
           {"tuple", Tuple{{1, Tuple{}, Tuple{{2, 3, 4, 5}}}}},
           {5, Dict{}}};
  for (const int protocol : {2, 4}) {
    StringSink sink;
    Writer writer(sink, protocol);
    writer.value(all);
    writer.finish();
    EXPECT_EQ(value_of(sink.text), all) << protocol;
  }
}

TEST(PickleWriter, LongContainersAreWrittenInBatches) {
  List many;
  for (int i = 0; i < 2500; ++i) many.emplace_back(i);
  StringSink sink;
  Writer writer(sink, 2);
  writer.value(many);
  writer.finish();
  Limits limits;
  limits.pickle_stack = 1002;
  EXPECT_EQ(value_of(sink.text, limits), Value(many));
}

TEST(PickleWriter, SplicedPicklesKeepTheirOwnMemo) {
  const std::string first = program(
      "]q\x00K\x01"
      "ah\x00\x86"s);
  StringSink sink;
  Writer writer(sink, 2);
  writer.mark();
  writer.shared_string("s");
  writer.splice(first);
  writer.splice(first);
  writer.shared_string("s");
  writer.tuple();
  writer.finish();
  const Value pair = Tuple{{List{1}, List{1}}};
  EXPECT_EQ(value_of(sink.text), Value(Tuple{{"s", pair, pair, "s"}}));
}

TEST(PickleWriter, NamesCannotSmuggleOpcodesIn) {
  EXPECT_EQ(refusal("\x80\x04\x8c\x03"
                    "a\nb\x8c\x01"
                    "c\x93."s),
            ErrorCode::kCorrupt);
  EXPECT_EQ(refusal("\x80\x04\x8c\x01"
                    "a\x8c\x03"
                    "b\nc\x93."s),
            ErrorCode::kCorrupt);
  StringSink sink;
  Writer writer(sink, 2);
  EXPECT_EQ(error_of([&] { writer.global("a\nb", "c"); }).code(), ErrorCode::kInvalidArgument);
}

TEST(PickleWriter, RefusesTensorsItWasNotToldHowToWrite) {
  StringSink sink;
  Writer writer(sink, 2);
  EXPECT_EQ(error_of([&] { writer.value(StoredTensor{}); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Disassemble, ShowsOpcodesAndEscapesText) {
  const std::string text =
      disassemble(as_bytes(program("X\x03\x00\x00\x00"
                                   "a\x1b"
                                   "bK\x05"s)));
  EXPECT_NE(text.find("PROTO 2"), std::string::npos);
  EXPECT_NE(text.find("BINUNICODE 'a\\x1bb'"), std::string::npos);
  EXPECT_NE(text.find("BININT1 5"), std::string::npos);
}

TEST(Disassemble, StopsAtABrokenPlaceAndAtTheLineLimit) {
  EXPECT_NE(disassemble(as_bytes("\x80\x02\xfe"s)).find("not a pickle opcode"), std::string::npos);
  EXPECT_EQ(disassemble(as_bytes(program("NNNN")), 2), "     0: PROTO 2\n     2: NONE\n... 4 more bytes\n");
}

}  // namespace pickle_test
}  // namespace cairn::pickle
