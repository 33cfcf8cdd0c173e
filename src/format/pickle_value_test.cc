// From graphs to values: what becomes plain, what stays opaque, and how far one may go.

#include <gtest/gtest.h>

#include "format/pickle_test_programs.h"

namespace cairn::pickle {
namespace {

using namespace std::literals;

TEST(PickleValue, ATorchSizeIsItsTuple) {
  EXPECT_EQ(value_of(program("ctorch\nSize\n(K\1K\2t\x85R"s)), Value(Tuple{{1, 2}}));
  for (const std::string& args : {"]\x85"s, "K\1\x85"s, ")"s, "))\x86"s})
    EXPECT_TRUE(value_of(program("ctorch\nSize\n" + args + "R")).is<Opaque>()) << args;
}

// An unknown object is kept in protocol 2 as it was written, classes memoised.
TEST(PickleValue, WhateverAnUnknownObjectHoldsIsWrittenAgain) {
  for (const std::string& body : {"ca\nB\nq\0)R"s,                          // a call
                                  "ca\nB\nq\0)\x81"s,                       // a new object
                                  "ca\nB\nq\0)\x81(K\1K\2e"s,               // with items of a list
                                  "ca\nB\nq\0)\x81(K\1K\2u"s,               // of a dict
                                  "ca\nB\nq\0)\x81(K\1e(K\1K\2u}(K\3Nub"s,  // and with a state
                                  "ca\nB\nq\0X\7\0\0\0storage\x85Q\x85R"s,  // a persistent id in an argument
                                  "ca\nB\nq\0(NNNNt\x85R"s, "ca\nB\nq\0NNN\x87R"s}) {  // tuples
    const Value value = value_of(program(body));
    ASSERT_TRUE(value.is<Opaque>()) << testing::PrintToString(body);
    EXPECT_EQ(value.get<Opaque>().class_name, "a.B");
    EXPECT_EQ(value.get<Opaque>().pickle, program(body));
  }
  EXPECT_EQ(value_of(program("NQ")).get<Opaque>().pickle, program("NQ"));
}

TEST(PickleValue, ItemsGivenOneByOneAreThoseGivenAtOnce) {
  const Value at_once = value_of(program("ca\nB\n)\x81(K\1K\2e(K\3K\4u"s));
  EXPECT_EQ(value_of(program("ca\nB\n)\x81K\1aK\2aK\3K\4s"s)), at_once);
  EXPECT_EQ(value_of(program("ca\nB\n)\x81(K\1eK\2a(K\3K\4u"s)), at_once);
}

// `body` around None, so many times.
std::string nested(const std::string& before, const std::string& after, int times) {
  std::string text = "N";
  for (int i = 0; i < times; ++i) text = before + text + after;
  return program(text);
}

TEST(PickleValue, DepthIsCountedWhateverIsNested) {
  struct Case {
    std::string before, after;
    int most;  // levels that fit into a depth of 6
  };
  const std::string b = "ca\nB\n";
  for (const auto& [before, after, most] : std::vector<Case>{{"(", "t", 6},
                                                             {"]", "a", 6},
                                                             {"}K\1"s, "s", 6},
                                                             {"\x8f(", "\x90", 6},
                                                             {"", "Q", 6},
                                                             {b + ")\x81", "a", 6},
                                                             {b + ")\x81N", "s", 6},
                                                             {b + ")\x81", "b", 6},
                                                             {b, "\x85R", 3}}) {
    Limits limits;
    limits.depth = 6;
    const auto walk = [&](int times) {
      const Graph graph = parse(nested(before, after, times));
      to_value(graph, graph.root(), {}, limits);
    };
    EXPECT_NO_THROW(walk(most)) << testing::PrintToString(before + after);
    EXPECT_EQ(error_of([&] { walk(most + 1); }).code(), ErrorCode::kLimit)
        << testing::PrintToString(before + after);
  }
}

TEST(PickleValue, ATensorTakesTwoLevelsOfItsOwn) {
  const LeafReader leaf = [](const Graph&, Ref, Value& made) {
    made = 7;
    return true;
  };
  const auto walk = [&](std::uint32_t depth) {
    Limits limits;
    limits.depth = depth;
    const Graph graph = parse(program("ca\nB\n\x85"));  // a leaf at depth 1
    return to_value(graph, graph.root(), leaf, limits);
  };
  EXPECT_EQ(walk(3), Value(Tuple{List{Value(7)}}));
  EXPECT_EQ(error_of([&] { walk(2); }).code(), ErrorCode::kLimit);
}

// A tuple of `items` Nones, and that tuple `fetches` times more.
std::string shared_tuple(int items, int fetches) {
  std::string body = "((" + std::string(static_cast<std::size_t>(items), 'N') + "tq\0"s;
  for (int i = 0; i < fetches; ++i) body += "h\0"s;
  return program(body + "t");
}

TEST(PickleValue, AValueHasAtMostFourPartsAnOpcodeAndSixteen) {
  bool at_most = false;
  bool one_more = false;
  for (int items = 1; items < 25; ++items) {
    for (int fetches = 1; fetches < 20; ++fetches) {
      const Graph graph = parse(shared_tuple(items, fetches));
      const auto parts = static_cast<std::uint64_t>(1 + (fetches + 1) * (items + 1));
      const std::uint64_t most = 4 * graph.opcodes() + 16;
      at_most |= parts == most;
      one_more |= parts == most + 1;
      if (parts <= most) {
        EXPECT_NO_THROW(to_value(graph, graph.root(), {})) << items << " x " << fetches;
      } else {
        EXPECT_EQ(error_of([&] { to_value(graph, graph.root(), {}); }).code(), ErrorCode::kLimit);
      }
    }
  }
  EXPECT_TRUE(at_most && one_more);
}

TEST(PickleValue, ALargeValueTakesSixteenMegabytesAnd24BytesForEachOfItsProgram) {
  Limits limits;
  limits.pickle_stack = 1 << 20;
  const auto walk = [&](int items) {
    const std::string text = shared_tuple(items, 1);
    const Graph graph = parse(text, Dialect::kTorch, limits);
    const std::uint64_t most = ((16U << 20U) + 24 * text.size()) / sizeof(Value);
    EXPECT_LT(most, 4 * graph.opcodes());
    const bool fits = static_cast<std::uint64_t>(1 + 2 * (items + 1)) <= most;
    if (fits) {
      EXPECT_NO_THROW(to_value(graph, graph.root(), {}, limits)) << items;
    } else {
      EXPECT_EQ(error_of([&] { to_value(graph, graph.root(), {}, limits); }).code(), ErrorCode::kLimit);
    }
    return fits;
  };
  // Around the one size where both are equal.
  const auto edge = static_cast<int>((16U << 20U) / (2 * sizeof(Value) - 24));
  EXPECT_TRUE(walk(edge - 50));
  EXPECT_FALSE(walk(edge + 50));
}

}  // namespace
}  // namespace cairn::pickle
