#include "format/storage_keys.h"

#include <gtest/gtest.h>

#include "format/pickle.h"
#include "format/pickle_writer.h"
#include "testing/errors.h"

namespace cairn {
namespace storage_keys_test {

using namespace std::string_literals;
using namespace std::string_view_literals;

std::string plus_a(const std::string& key) { return "a" + key; }

// ('storage', torch.FloatStorage, key, 'cpu', 4) as CPython writes it the first time, the key from `key`.
std::string storage(std::string_view key) {
  std::string text = "(X\7\0\0\0storageq\1ctorch\nFloatStorage\nq\2"s;
  text += key;
  text += "X\3\0\0\0cpuq\4K\4tq\5Q"sv;
  return text;
}

// And later on, with what it has in its memo.
std::string again(std::string_view key) { return "(h\1h\2"s + std::string(key) + "h\4K\4tQ"; }

TEST(StorageKeys, AreFoundInOrder) {
  const std::string pickle =
      "\x80\2("s + storage("X\1\0\0\0007q\3"sv) + again("X\1\0\0\0003q\6"sv) + again("h\3"sv) + "t."s;
  EXPECT_EQ(storage_keys(pickle), (std::vector<std::string>{"7", "3"}));
}

TEST(StorageKeys, OfAPickleWithoutStoragesAreNone) {
  EXPECT_TRUE(storage_keys("\x80\2K\1."sv).empty());
  EXPECT_EQ(rename_storages("\x80\2K\1."sv, plus_a), "\x80\2K\1."sv);
}

TEST(StorageKeys, ChangeWhereTheyNameAStorageAndNowhereElse) {
  // The text '7' is memoised as a key, then fetched as plain text, then as a key again.
  const std::string pickle = "\x80\2("s + storage("X\1\0\0\0007q\3"sv) + "h\3"s + again("h\3"sv) + "t."s;
  const std::string renamed = rename_storages(pickle, plus_a);
  EXPECT_EQ(storage_keys(renamed), (std::vector<std::string>{"a7"}));
  const pickle::Graph graph = pickle::read(*memory_source(as_bytes(renamed)), {});
  ASSERT_EQ(graph.size(graph.root()), 3U);
  EXPECT_EQ(graph.text(graph.item(graph.root(), 1)), "7");
  for (const std::size_t i : {0, 2}) {
    const pickle::Ref id = graph.payload(graph.item(graph.root(), i));
    EXPECT_EQ(graph.text(graph.item(id, 2)), "a7");
    EXPECT_EQ(graph.text(graph.item(id, 3)), "cpu");
  }
}

TEST(StorageKeys, ThatWereTextFirstStayTextThere) {
  const std::string pickle = "\x80\2(X\1\0\0\0007q\0"s + storage("h\0"sv) + "h\0t."s;
  const std::string renamed = rename_storages(pickle, plus_a);
  const pickle::Graph graph = pickle::read(*memory_source(as_bytes(renamed)), {});
  EXPECT_EQ(graph.text(graph.item(graph.root(), 0)), "7");
  EXPECT_EQ(graph.text(graph.item(graph.payload(graph.item(graph.root(), 1)), 2)), "a7");
  EXPECT_EQ(graph.text(graph.item(graph.root(), 2)), "7");
}

TEST(StorageKeys, OfGreatLengthAreNotWrittenOutWithoutEnd) {
  const std::string key = "X\x60\xea\0\0"s + std::string(60'000, 'k') + "q\3";
  std::string pickle = "\x80\2("s + storage(key);
  for (int i = 0; i < 2000; ++i) pickle += "h\3"sv;
  pickle += "t.";
  EXPECT_EQ(storage_keys(pickle), std::vector<std::string>{std::string(60'000, 'k')});
  EXPECT_EQ(error_of([&] { rename_storages(pickle, plus_a); }).code(), ErrorCode::kLimit);
}

TEST(StorageKeys, OfProtocol4KeepTheMemoInStep) {
  // MEMOIZE counts by itself: one that goes must not move the others.
  std::string text("\x80\4("sv);
  text += "(\x8c\7storage\x94\x8c\5torch\x94\x8c\014FloatStorage\x94\x93\x94"sv;  // memo 0, 1, 2, 3
  text += "\x8c\1"sv;
  text += "7\x94\x8c\3cpu\x94K\4t\x94Q"sv;  // memo 4, 5, 6
  text += "h\0h\5h\4t."sv;
  const std::string renamed = rename_storages(text, plus_a);
  const pickle::Graph graph = pickle::read(*memory_source(as_bytes(renamed)), {});
  EXPECT_EQ(graph.text(graph.item(graph.root(), 1)), "storage");
  EXPECT_EQ(graph.text(graph.item(graph.root(), 2)), "cpu");
  EXPECT_EQ(graph.text(graph.item(graph.root(), 3)), "7");
}

TEST(StorageKeys, OfAnotherFormAreRefused) {
  EXPECT_EQ(error_of([] { storage_keys("\x80\2K\1Q."sv); }).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([] { storage_keys("\x80\2K\1"sv); }).code(), ErrorCode::kCorrupt);
}

}  // namespace storage_keys_test
}  // namespace cairn
