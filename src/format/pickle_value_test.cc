// From graphs to values: what becomes plain, what stays opaque, and how far one may go.

#include <gtest/gtest.h>

#include "testing/pickle_programs.h"

namespace cairn::pickle {
namespace pickle_value_test {

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
                                                             {"\x8f(", "\x90", 2},
                                                             {"", "Q", 6},
                                                             {b + ")\x81", "a", 6},
                                                             {b + ")\x81N", "s", 6},
                                                             {b + ")\x81", "b", 6},
                                                             {b, "\x85R", 3}}) {
    Limits limits;
    limits.depth = 6;
    const auto walk = [&, head = before, tail = after](int times) {
      const Graph graph = parse(nested(head, tail, times));
      to_value(graph, graph.root(), {}, limits);
    };
    EXPECT_NO_THROW(walk(most)) << testing::PrintToString(before + after);
    EXPECT_EQ(error_of([&, more = most + 1] { walk(more); }).code(), ErrorCode::kLimit)
        << testing::PrintToString(before + after);
  }
}

// As deep as one may be: what is kept of an unknown object can be read again, sets and bytes in it too.
TEST(PickleValue, AnOpaqueObjectThatIsReadIsWrittenNoDeeperThanItMayBe) {
  Limits limits;
  limits.depth = 8;
  for (const std::string& inner : {"\x8f(K\1\x90"s, "\x8f"s, "C\1\xff"s, "N"s}) {
    int accepted = 0;
    for (int lists = 0; lists < 12; ++lists) {
      std::string text = "ca\nB\n" + std::string(static_cast<std::size_t>(lists), ']') + inner +
                         std::string(static_cast<std::size_t>(lists), 'a') + "\x85R";
      Value value;
      try {
        value = value_of(program(text), limits);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kLimit);
        continue;
      }
      ++accepted;
      EXPECT_EQ(value_of(value.get<Opaque>().pickle, limits), value) << testing::PrintToString(text);
    }
    EXPECT_GE(accepted, 4);
    EXPECT_LT(accepted, 8);
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

// What a walk of this program takes from its budget.
std::uint64_t memory_for(const std::string& text, const LeafReader& leaf = {}) {
  Limits limits;
  limits.memory_per_byte = 100'000;
  const Graph graph = parse(text, Dialect::kTorch, limits);
  Budget budget(text.size(), limits);
  (void)to_value(graph, graph.root(), leaf, budget, limits);
  std::uint64_t left = 0;
  for (std::uint64_t step = std::uint64_t{1} << 40; step > 0; step /= 2)
    if (budget.try_take(step)) left += step;
  return limits.memory_base / 2 + (limits.memory_per_byte - 2) * text.size() - left;
}

// A tuple that holds a string, then so many references to it.
std::string shared_string(std::size_t length, int fetches) {
  std::string body = "(X" + std::string(4, '\0') + std::string(length, 's') + "q\0"s;
  store(body.data() + 2, static_cast<std::uint32_t>(length));
  for (int i = 0; i < fetches; ++i) body += "h\0"s;
  return program(body + "t");
}

TEST(PickleValue, EachPartIsPaidFor) {
  EXPECT_EQ(memory_for(program("N")), 0U);
  EXPECT_EQ(memory_for(program("NNNNt"s.insert(0, "("))), block_bytes(4 * sizeof(Value)));
  EXPECT_EQ(memory_for(shared_string(15, 3)), block_bytes(4 * sizeof(Value)));  // they have it inside
  EXPECT_EQ(memory_for(shared_string(1000, 3)), block_bytes(4 * sizeof(Value)) + 4 * block_bytes(1001));
  EXPECT_EQ(memory_for(program("}")), 0U);
  EXPECT_EQ(memory_for(program("}(K\1NK\2Nu")), dict_bytes(2));
  // Of an opaque object what it holds in the end, not what writing it took.
  const Value opaque = value_of(program("ca\nB\n)R"));
  EXPECT_EQ(memory_for(program("ca\nB\n)R")), heap_bytes(opaque));
  EXPECT_GT(heap_bytes(opaque), sizeof(Opaque));
}

TEST(PickleValue, AValueTakesWhatIsLeftOfTheBudgetAndNoByteMore) {
  const std::string text = shared_string(1000, 5);
  const Graph graph = parse(text);
  const std::uint64_t needed = memory_for(text);
  Limits limits;
  limits.memory_per_byte = 2;  // the base alone
  limits.memory_base = 2 * needed;
  Budget enough(text.size(), limits);
  EXPECT_NO_THROW(to_value(graph, graph.root(), {}, enough));
  EXPECT_FALSE(enough.try_take(1));
  limits.memory_base = 2 * (needed - 1);
  Budget less(text.size(), limits);
  EXPECT_EQ(error_of([&] { to_value(graph, graph.root(), {}, less); }).code(), ErrorCode::kLimit);
}

TEST(PickleValue, OneStringNamedOftenIsRefusedBeforeItFillsTheMemory) {
  EXPECT_NO_THROW(value_of(shared_string(60'000, 100)));
  const Error error = error_of([&] { value_of(shared_string(60'000, 1000)); });
  EXPECT_EQ(error.code(), ErrorCode::kLimit);
  EXPECT_TRUE(mentions(error, "more memory than 16 MiB and 32 times its size"));
}

TEST(PickleValue, AGraphPaysForItsWordsAndGivesBackItsMemo) {
  const std::string text = program("(" + std::string(5000, ']') + "t");
  Limits limits;
  Budget budget(text.size(), limits);
  const std::uint64_t all = limits.memory_base / 2 + (limits.memory_per_byte - 2) * text.size();
  Options options;
  options.budget = &budget;
  const Graph graph = read(*memory_source(as_bytes(text)), options, limits);
  EXPECT_GE(graph.memory(), 4 * 8 * 5000U);
  EXPECT_TRUE(budget.try_take(all - graph.memory()));
  EXPECT_FALSE(budget.try_take(1));

  limits.memory_per_byte = 2;
  limits.memory_base = 2 * 8 * 4 * 4000;  // words for 4,000 of them
  const Error error = error_of([&] { parse(text, Dialect::kTorch, limits); });
  EXPECT_EQ(error.code(), ErrorCode::kLimit);
  EXPECT_TRUE(error.offset().has_value());
}

TEST(PickleValue, AClassHasANameOfAtMost512Bytes) {
  const auto named = [](std::size_t module, std::size_t name) {
    return program("c" + std::string(module, 'm') + "\n" + std::string(name, 'n') + "\n");
  };
  EXPECT_NO_THROW(parse(named(512, 512)));
  EXPECT_EQ(refusal(named(513, 1)), ErrorCode::kLimit);
  EXPECT_EQ(refusal(named(1, 513)), ErrorCode::kLimit);
}

}  // namespace pickle_value_test
}  // namespace cairn::pickle
