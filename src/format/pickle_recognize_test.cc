// Objects that a reducer takes whole from the program: the result is that of reading opcode by opcode.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "format/pickle_cursor.h"
#include "testing/pickle_programs.h"

namespace cairn::pickle {
namespace pickle_recognize_test {

using namespace std::literals;

// Classes m.C0 to m.C9 that hold a number, as the argument of a call or as their state.
class Numbers final : public Reducer {
 public:
  std::uint32_t class_id(std::string_view module, std::string_view name) override {
    return module == "m" ? static_cast<std::uint32_t>(name[1] - '0') + 1 : 0;
  }
  bool called(const Graph& graph, std::uint32_t id, Ref args, Ref& made) override {
    if (graph.size(args) != 1) return false;
    return make(graph, id, graph.item(args, 0), made);
  }
  bool built(const Graph& graph, std::uint32_t id, Ref, Ref state, Ref& made) override {
    return make(graph, id, state, made);
  }
  bool recognize(const Graph&, std::uint32_t id, Cursor& at, Ref& made) override {
    std::int64_t number = 0;
    if (!at.literal(")\x81\x94", 1) || !at.integer(number) ||
        !at.literal("\x94"
                    "b",
                    1))
      return false;
    made = handle(id, static_cast<std::uint64_t>(number));
    ++recognized;
    return true;
  }

  int recognized = 0;

 private:
  static bool make(const Graph& graph, std::uint32_t id, Ref number, Ref& made) {
    if (!graph.is_integer(number)) return false;
    made = handle(id, static_cast<std::uint64_t>(graph.integer(number)));
    return true;
  }
};

constexpr int kClasses = 5;  // memo numbers 0 to 4 are theirs

// PROTO and MARK, then the classes: the first items of a tuple.
std::string classes() {
  std::string text = "\x80\4("s;
  for (int i = 0; i < kClasses; ++i) text += "\x8c\1m\x8c\2C"s + static_cast<char>('0' + i) + "\x93\x94";
  return text;
}

std::string fetch(int number) {
  std::string text = "j";
  for (int shift = 0; shift < 32; shift += 8) text.push_back(static_cast<char>(number >> shift));
  return text;
}

// An object of class C`c`, its state and itself memoised.
std::string object(int c, int number) {
  return fetch(c) + ")\x81\x94M" + static_cast<char>(number & 255) + static_cast<char>(number >> 8) +
         "\x94"
         "b";
}

// "class:number" of each handle and "number" of each number of the tuple that the program makes.
std::string outcome(const std::string& text, bool plain, int* recognized = nullptr) {
  Numbers reducer;
  Options options;
  options.dialect = Dialect::kMetadata;
  options.reducer = &reducer;
  options.plain = plain;
  std::string all;
  try {
    const Graph graph = read(*memory_source(as_bytes(text)), options);
    graph.each(graph.root(), [&](Ref item) {
      if (item.kind() == Kind::kHandle)
        all += fmt::format("{}:{} ", graph.handle_type(item), graph.handle_index(item));
      if (item.kind() == Kind::kInt) all += fmt::format("{} ", graph.integer(item));
      return true;
    });
  } catch (const Error& e) {
    all = fmt::format("error {}", static_cast<int>(e.code()));
  }
  if (recognized != nullptr) *recognized = reducer.recognized;
  return all;
}

TEST(PickleRecognize, EveryObjectIsOfItsOwnClass) {
  std::string text = classes();
  std::string expected;
  for (int c = 0; c < kClasses; ++c) {
    text += object(c, 700 + c);
    expected += fmt::format("{}:{} ", c + 1, 700 + c);
  }
  for (int c = 0; c < kClasses; ++c) {
    text += fetch(c) + "K" + static_cast<char>(c) + "\x85R";  // a call
    expected += fmt::format("{}:{} ", c + 1, c);
  }
  int recognized = 0;
  EXPECT_EQ(outcome(text + "t.", false, &recognized), expected);
  EXPECT_EQ(recognized, kClasses);
  EXPECT_EQ(outcome(text + "t.", true, &recognized), expected);
  EXPECT_EQ(recognized, 0);
}

TEST(PickleRecognize, PartsOfObjectsThatWereTakenWholeCanBeFetched) {
  constexpr int kObjects = 300;
  std::string text = classes();
  for (int i = 0; i < kObjects; ++i) {
    text += object(i % kClasses, i);
    if (i % 70 == 69) text += "N";  // ends a stretch of them
  }
  // Every one of them alone, so that none is there because of another.
  for (int i = 0; i < kObjects; ++i) {
    const int state = kClasses + 2 * i + 1;
    const std::string whole = text + fetch(state) + "t.";
    const std::string plain = outcome(whole, true);
    EXPECT_TRUE(plain.ends_with(fmt::format(" {} ", i))) << plain;
    EXPECT_EQ(outcome(whole, false), plain) << i;
  }
  std::string all = text;  // and one after the other, from the last to the first
  for (int i = kObjects - 1; i >= 0; --i) all += fetch(kClasses + 2 * i + 1);
  EXPECT_EQ(outcome(all + "t.", false), outcome(all + "t.", true));
  const std::string none = text + fetch(kClasses + 2 * kObjects) + "t.";
  EXPECT_EQ(outcome(none, false), fmt::format("error {}", static_cast<int>(ErrorCode::kCorrupt)));
}

TEST(PickleRecognize, FramesThatEndAnywhereAreReadTheSameWay) {
  std::string body;
  for (int c = 0; c < kClasses; ++c) body += object(c, c);
  body += "t.";
  int fine = 0;
  for (std::size_t length = 0; length <= body.size(); ++length) {
    const std::string frame = "\x95"s + static_cast<char>(length) + std::string(7, '\0');
    const std::string text = classes() + frame + body;
    const std::string plain = outcome(text, true);
    int recognized = 0;
    EXPECT_EQ(outcome(text, false, &recognized), plain) << length;
    if (plain.starts_with("error")) continue;
    EXPECT_EQ(recognized, kClasses) << length;
    ++fine;
  }
  EXPECT_EQ(fine, 1 + 7 * kClasses + 2);  // where an opcode ends
}

}  // namespace pickle_recognize_test
}  // namespace cairn::pickle
