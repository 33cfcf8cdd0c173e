#include "cairn/checkpoint.h"
#include "testing/checkpoints.h"
#include "testing/errors.h"
#include "testing/open_file.h"

namespace cairn {
namespace {

struct TorchSave : testing::Test {
  TestFolder folder;
  std::unique_ptr<Checkpoint> save(const Value& root) {
    return Checkpoint::open(folder.write("model.pt", torch_bytes(root)));
  }
};

std::vector<std::string> names(const auto& summaries) {
  std::vector<std::string> names;
  for (const auto& summary : summaries) names.emplace_back(summary.name);
  return names;
}

TEST_F(TorchSave, FlattensItsDict) {
  const auto file = save(Dict{{"model", Dict{{"w", Value(arange({2, 3}))}, {"b", Value(arange({3}))}}},
                              {"step", Value(7)},
                              {"betas", Tuple{{Value(0.9), Value(0.99)}}}});
  EXPECT_EQ(names(file->tensors()), (std::vector<std::string>{"model.w", "model.b"}));
  EXPECT_EQ(names(file->objects()), (std::vector<std::string>{"step", "betas"}));
  EXPECT_EQ(file->tensors()[0].bytes, 24u);
  EXPECT_EQ(file->object("step"), Value(7));
  EXPECT_EQ(file->object("betas"), Value(Tuple{{Value(0.9), Value(0.99)}}));
  EXPECT_EQ(floats(file->read("model.w", {{1, 1, 1}, {0, 2, 2}})), (std::vector<float>{3, 5}));
  EXPECT_EQ(file->metadata(), nullptr);
}

TEST_F(TorchSave, NamesABareTensorRoot) {
  const auto file = save(arange({3}));
  EXPECT_EQ(names(file->tensors()), std::vector<std::string>{"(root)"});
  EXPECT_EQ(floats(file->read("(root)")), floats(arange({3})));
}

TEST_F(TorchSave, NamesABareObjectRoot) {
  const auto file = save("hello");
  EXPECT_EQ(names(file->objects()), std::vector<std::string>{"(root)"});
  EXPECT_EQ(file->object("(root)"), Value("hello"));
}

TEST_F(TorchSave, NumbersAListOrTupleAtTheTop) {
  for (const Value& root : {Value(List{arange({2}), 5}), Value(Tuple{{arange({2}), 5}})}) {
    const auto file = save(root);
    EXPECT_EQ(names(file->tensors()), std::vector<std::string>{"0"});
    EXPECT_EQ(names(file->objects()), std::vector<std::string>{"1"});
    EXPECT_EQ(file->object("1"), Value(5));
  }
}

TEST_F(TorchSave, AListOfPlainValuesAtTheTopIsOneEntry) {
  for (const Value& root : {Value(List{1, "a"}), Value(Tuple{{1, List{2, 3}}}), Value(List{})}) {
    const auto file = save(root);
    EXPECT_EQ(names(file->objects()), std::vector<std::string>{"(root)"});
    EXPECT_EQ(file->object("(root)"), root);
  }
  EXPECT_EQ(names(save(List{Dict{{"a", 1}}})->objects()), std::vector<std::string>{"0.a"});
}

TEST_F(TorchSave, LoadsTensorsInsideAnObject) {
  const auto file =
      save(Dict{{"pair", Tuple{{Value(arange({2})), Value(List{Value(Dict{{"x", arange({1})}})})}}}});
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->object("pair"),
            Value(Tuple{{Value(arange({2})), Value(List{Value(Dict{{"x", arange({1})}})})}}));
}

TEST_F(TorchSave, SaysWhereElementsLie) {
  const auto file = save(Dict{{"w", Value(arange({4}, 3))}});
  const auto places = file->chunks(0);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].file, "model.pt");
  EXPECT_EQ(places[0].length, 16u);
  const auto source = open_file(folder / "model.pt");
  float first = 0;
  source->read_at(places[0].offset, std::as_writable_bytes(std::span(&first, 1)));
  EXPECT_EQ(first, 3);
  EXPECT_EQ(file->files()[0].size, source->size());
  EXPECT_EQ(error_of([&] { file->chunks(1); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { file->read_at(1, {}); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(TorchSave, NoticesAFlippedBitWhenAllIsRead) {
  std::string bytes = torch_bytes(Dict{{"w", Value(arange({4}))}});
  const auto place = save(Dict{{"w", Value(arange({4}))}})->chunks(0)[0];
  bytes[place.offset + 9] ^= 1;
  const auto file = Checkpoint::open(folder.write("flipped.pt", bytes));
  const Error e = error_of([&] { file->read("w"); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.tensor(), "w");
  EXPECT_TRUE(e.file().ends_with("flipped.pt"));
}

TEST_F(TorchSave, TellsItsFacts) {
  std::map<std::string, std::string> facts;
  for (const auto& [key, text] : save(Dict{{"w", Value(arange({4}))}})->facts()) facts[key] = text;
  EXPECT_EQ(facts["format"], "torch.save archive");
  EXPECT_EQ(facts["byteorder"], "little");
  EXPECT_EQ(facts["pickle protocol"], "2");
}

TEST_F(TorchSave, SaysThatAnObjectIsAbsent) {
  const auto file = save(Dict{{"step", 7}, {"w", Value(arange({1}))}});
  EXPECT_EQ(error_of([&] { file->object("stepp"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { file->object("w"); }).code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
