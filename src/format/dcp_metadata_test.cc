#include "format/dcp_metadata.h"

#include <gtest/gtest.h>

#include "format/pickle_ops.h"
#include "format/pickle_writer.h"
#include "testing/errors.h"

namespace cairn {
namespace dcp_metadata_test {

// A checkpoint of `tensors` tensors, each cut into `chunks` rows over as many files.
Metadata sample(int tensors, int chunks) {
  Metadata metadata;
  PathMap paths;
  for (int t = 0; t < tensors; ++t) {
    const std::string name = "model.layer." + std::to_string(t);
    TensorStorageMetadata tensor;
    tensor.properties.dtype = t % 3 == 0 ? DType::kBFloat16 : DType::kFloat32;
    tensor.properties.requires_grad = t % 2 == 0;
    tensor.size = Shape{4 * chunks, 100000, 7};
    for (int c = 0; c < chunks; ++c) {
      tensor.chunks.push_back({{4 * c, 0, 0}, {4, 100000, 7}});
      metadata.storage_data.add(
          {name, tensor.chunks.back().offsets, c},
          {"__" + std::to_string(c) + "_0.distcp", std::int64_t{t} << 32, 4096, {}, {}});
    }
    metadata.state_dict_metadata.emplace_back(name, std::move(tensor));
    paths.add(name, {"model", "layer", std::int64_t{t}});
  }
  metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
  metadata.storage_data.add({"step", std::nullopt, std::nullopt},
                            {"__0_0.distcp", 5, 6, {"stream.zstd/1"}, {}});
  paths.add("step", {"step"});
  metadata.planner_data = paths;
  metadata.storage_meta = StorageMeta{"/ckpt", "id", std::nullopt, {}, true, {}};
  metadata.version = "1.0.0";
  metadata.written_as = "torch.distributed.checkpoint";
  return metadata;
}

std::string written(const Metadata& metadata) {
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  return sink.text;
}

Metadata parsed(const std::string& text) { return read_dcp_metadata(*memory_source(as_bytes(text))); }

TEST(DcpMetadata, WhatIsWrittenReadsBackEqual) {
  for (const auto& [tensors, chunks] : {std::pair{0, 0}, {1, 1}, {50, 3}, {3, 2500}}) {
    const Metadata metadata = sample(tensors, chunks);
    EXPECT_EQ(parsed(written(metadata)), metadata) << tensors << " x " << chunks;
  }
}

TEST(DcpMetadata, PathsKeepKeysOfAll64Bits) {
  Metadata metadata = sample(1, 1);
  PathMap paths;
  paths.add("model.layer.0",
            {"model", INT64_MIN, std::int64_t{1} << 59, (std::int64_t{1} << 59) - 1, INT64_MAX});
  metadata.planner_data = paths;
  EXPECT_EQ(parsed(written(metadata)), metadata);
}

TEST(DcpMetadata, QuickAndPlainReadingAgree) {
  const std::string text = written(sample(40, 5));
  EXPECT_EQ(read_dcp_metadata_plainly(*memory_source(as_bytes(text))), parsed(text));
}

// What CPython writes: everything is memoised, and a string is fetched wherever it was first seen, also in
// the middle of objects that were recognised whole.
TEST(DcpMetadata, StringsFirstSeenInsideRecognisedObjectsAreFound) {
  StringSink sink;
  pickle::Writer w(sink, 4);
  const auto object = [&](std::string_view module, std::string_view name) {
    w.global(module, name);
    w.raw(")\x81");
    w.memoize();
    w.raw("}");
    w.memoize();
    w.mark();
  };
  constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";
  object(kModule, "Metadata");
  w.shared_string("state_dict_metadata");
  w.empty_dict();
  w.shared_string("storage_data");
  w.empty_dict();
  w.mark();
  for (int i = 0; i < 300; ++i) {
    object(kModule, "MetadataIndex");
    w.shared_string("fqn");
    w.shared_string("name." + std::to_string(i));
    w.shared_string("index");
    w.none();
    w.raw("ub");
    object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    w.shared_string("relative_path");
    w.shared_string("file." + std::to_string(i / 7 % 5));
    w.shared_string("offset");
    w.integer(i);
    w.shared_string("length");
    w.integer(1);
    w.raw("ub");
  }
  w.raw("uub");
  w.finish();
  const Metadata metadata = parsed(sink.text);
  ASSERT_EQ(metadata.storage_data.size(), 300U);
  EXPECT_EQ(metadata.storage_data.info(299).relative_path, "file.2");
  EXPECT_EQ(metadata, read_dcp_metadata_plainly(*memory_source(as_bytes(sink.text))));
}

TEST(DcpMetadata, ZeroDimensionalAndHighRankTensorsSurvive) {
  Metadata metadata = sample(0, 0);
  for (const Shape& shape : {Shape{}, Shape{1, 2, 3, 4}, Shape{1, 1, 1, 1, 1, 1, 1, 1, 9}}) {
    TensorStorageMetadata tensor;
    tensor.size = shape;
    tensor.chunks.push_back(Box::whole(shape));
    metadata.state_dict_metadata.emplace_back("t" + to_string(shape), tensor);
  }
  EXPECT_EQ(parsed(written(metadata)), metadata);
}

TEST(DcpMetadata, UnknownAttributesSurviveARewrite) {
  Metadata metadata = sample(2, 2);
  const Dict note{{"checksum", "abc"}, {"n", 7}};
  metadata.extra = note;
  metadata.storage_meta->extra = note;
  auto& tensor = std::get<TensorStorageMetadata>(metadata.state_dict_metadata[1].second);
  tensor.extra = note;
  tensor.chunk_extra.emplace_back(1, note);
  std::get<BytesStorageMetadata>(metadata.state_dict_metadata.back().second).extra = note;
  StorageInfo place = metadata.storage_data.info(2);
  place.extra = note;
  metadata.storage_data.add(metadata.storage_data.index(2), place);
  EXPECT_EQ(parsed(written(metadata)), metadata);
}

// A later torch's sixth value of TensorProperties; in the file it is an attribute that other torches ignore.
TEST(DcpMetadata, FurtherTensorPropertiesSurviveARewrite) {
  Metadata metadata = sample(2, 2);
  auto& tensor = std::get<TensorStorageMetadata>(metadata.state_dict_metadata[1].second);
  tensor.properties.extra = {Tuple{{7, 1}}, "x"};
  const std::string text = written(metadata);
  EXPECT_NE(text.find(kPropertiesExtra), std::string::npos);
  EXPECT_EQ(parsed(text), metadata);
  EXPECT_EQ(read_dcp_metadata_plainly(*memory_source(as_bytes(text))), metadata);
}

TEST(DcpMetadata, AnEmptyListOfTransformsSurvivesARewrite) {
  Metadata metadata = sample(1, 2);
  StorageInfo place = metadata.storage_data.info(1);
  place.extra = {{"transform_descriptors", List{}}};
  metadata.storage_data.add(metadata.storage_data.index(1), place);
  const std::string text = written(metadata);
  EXPECT_EQ(parsed(text), metadata);
  EXPECT_EQ(written(parsed(text)), text);
}

// Frames of every length, put in at every opcode: right ones, ones that cut an opcode, nested ones.
TEST(DcpMetadata, QuickAndPlainReadingJudgeFramesAlike) {
  const std::string text = written(sample(2, 2));
  std::vector<std::uint64_t> starts;
  for (auto op = pickle::decode(text, 2); op; op = pickle::decode(text, op->next)) starts.push_back(op->at);
  const auto outcome = [](const std::string& program, bool plain) -> std::string {
    const auto source = memory_source(as_bytes(program));
    try {
      return written(plain ? read_dcp_metadata_plainly(*source) : read_dcp_metadata(*source));
    } catch (const Error& e) {
      return std::string(name_of(e.code()));
    }
  };
  const auto with_frame = [](std::string program, std::uint64_t at, std::uint64_t length) {
    std::string frame(9, '\x95');
    std::memcpy(frame.data() + 1, &length, sizeof(length));
    return program.insert(at, frame);
  };
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::uint64_t rest = text.size() - starts[i];
    for (const std::uint64_t length :
         {std::uint64_t{0}, std::uint64_t{1}, i % 7 + 2, rest / 2, rest, rest + 1}) {
      const std::string framed = with_frame(text, starts[i], length);
      const std::string quick = outcome(framed, false);
      ASSERT_EQ(quick, outcome(framed, true)) << starts[i] << " " << length;
      ASSERT_TRUE(quick == text || quick == "corrupt") << quick;
      accepted += quick == text ? 1 : 0;
      const std::string nested = with_frame(framed, starts[i] + 9, length / 2);
      ASSERT_EQ(outcome(nested, false), outcome(nested, true)) << starts[i] << " " << length;
    }
  }
  EXPECT_GT(accepted, 2 * starts.size());
  EXPECT_LT(accepted, 6 * starts.size());
}

TEST(DcpMetadata, ForeignPlannerDataIsKept) {
  Metadata metadata = sample(1, 1);
  metadata.planner_data = Value(List{1, "x",
                                     Opaque{"my.Plan",
                                            "\x80\x02"
                                            "cmy\nPlan\n)R."}});
  Metadata once = parsed(written(metadata));
  EXPECT_EQ(
      std::get<Value>(once.planner_data).get<Opaque>().pickle,
      std::string("\x80\x02](K\1X\1\0\0\0xcmy\nPlan\nq\0)Re.", 27));  // as a whole, for what is shared in it
  EXPECT_EQ(parsed(written(once)), once);
  metadata.planner_data = once.planner_data = Value(List{1, Tuple{{"x", None{}}}, Dict{{"a", 2.5}}});
  EXPECT_EQ(parsed(written(metadata)), once);
}

TEST(DcpMetadata, NegativeSizesAndEscapingPathsAreRefused) {
  Metadata metadata = sample(1, 1);
  std::get<TensorStorageMetadata>(metadata.state_dict_metadata[0].second).chunks[0].sizes[0] = -4;
  EXPECT_EQ(error_of([&] { parsed(written(metadata)); }).code(), ErrorCode::kCorrupt);
  metadata = sample(1, 1);
  metadata.storage_data.add({"x", std::nullopt, std::nullopt}, {"../x", 0, 0, {}, {}});
  EXPECT_EQ(error_of([&] { parsed(written(metadata)); }).code(), ErrorCode::kCorrupt);
}

TEST(DcpMetadata, APickleOfSomethingElseIsRefused) {
  EXPECT_EQ(error_of([] { parsed("\x80\x04N."); }).code(), ErrorCode::kUnsupported);
}

TEST(DcpMetadata, EveryTruncationIsRefused) {
  const std::string text = written(sample(3, 2));
  for (std::size_t n = 0; n < text.size(); ++n) {
    EXPECT_THROW(parsed(text.substr(0, n)), Error) << n;
  }
}

TEST(DcpMetadata, DuplicateEntriesAreRefused) {
  Metadata metadata = sample(1, 1);
  metadata.state_dict_metadata.push_back(metadata.state_dict_metadata[0]);
  EXPECT_TRUE(mentions(error_of([&] { parsed(written(metadata)); }), "twice"));
}

TEST(StorageData, FindsByNameAndOffsetAndReplacesEqualIndices) {
  StorageData data;
  const Shape zero{0, 0};
  const Shape four{4, 0};
  data.add({"w", zero, 0}, {"a", 1, 2, {}, {}});
  data.add({"w", four, 1}, {"b", 3, 4, {}, {}});
  data.add({"w", std::nullopt, std::nullopt}, {"c", 5, 6, {}, {}});
  data.add({"w", four, 9}, {"d", 7, 8, {}, {}});
  ASSERT_EQ(data.size(), 3U);
  EXPECT_EQ(data.info(*data.find("w", &four)).relative_path, "d");
  EXPECT_EQ(data.info(*data.find("w", nullptr)).relative_path, "c");
  const Shape other{8, 0};
  EXPECT_EQ(data.find("w", &other), std::nullopt);
  EXPECT_EQ(data.find("v", &zero), std::nullopt);
}

TEST(MetadataIndex, TheHintTakesNoPartInEqualityOrHash) {
  const MetadataIndex a{"w", Shape{1, 2}, 3};
  const MetadataIndex b{"w", Shape{1, 2}, std::nullopt};
  EXPECT_EQ(a, b);
  EXPECT_EQ(hash_of(a), hash_of(b));
  EXPECT_NE(a, (MetadataIndex{"w", std::nullopt, 3}));
  EXPECT_NE(a, (MetadataIndex{"w", Shape{}, 3}));
}

TEST(PathMap, KeepsNamesAndNumbersApart) {
  PathMap paths;
  paths.add("a.0", {"a", std::int64_t{0}});
  paths.add("a.1", {"a", "1"});
  EXPECT_EQ(paths.size(), 2U);
  EXPECT_EQ(paths.fqn(1), "a.1");
  EXPECT_EQ(paths.path(0), (Path{"a", std::int64_t{0}}));
  EXPECT_EQ(paths.find("a.1"), (Path{"a", "1"}));
  EXPECT_EQ(paths.find("b"), std::nullopt);
}

}  // namespace dcp_metadata_test
}  // namespace cairn
