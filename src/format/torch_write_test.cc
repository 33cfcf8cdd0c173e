#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "format/pickle_writer.h"
#include "format/torch_dtype.h"
#include "format/torch_file.h"
#include "format/torch_storages.h"

namespace cairn {
namespace torch_write_test {

Tensor iota(DType dtype, Shape shape) {
  Tensor t = Tensor::empty(dtype, std::move(shape));
  auto bytes = t.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 5 + 1);
  return t;
}

// Other elements of the same memory.
Tensor view_of(const Tensor& t, std::int64_t first_element, Shape shape, Shape strides) {
  TensorView v = t.view();
  v.data += first_element * static_cast<std::int64_t>(item_size(v.dtype));
  v.shape = std::move(shape);
  v.strides = std::move(strides);
  return {v, t.owner()};
}

std::string written(const Value& root, const TorchWriteOptions& options = {}) {
  StringSink sink;
  const std::uint64_t bytes = write_torch_file(sink, root, options);
  EXPECT_EQ(bytes, sink.text.size());
  return sink.text;
}

// What comes back, and the storages it came from.
struct Back {
  std::string bytes;
  std::unique_ptr<TorchFile> file;
  Value value;

  explicit Back(const Value& root) : bytes(written(root)) {
    file = TorchFile::open(memory_source(as_bytes(bytes)));
    value = file->load();
  }
  std::size_t storages() const {
    std::size_t n = 0;
    for (const ZipEntry& e : file->zip().entries()) n += e.name.find("/data/") != std::string::npos;
    return n;
  }
  std::uint64_t storage_bytes(int key) const { return file->zip().find("data/" + std::to_string(key))->size; }
  const TensorView& at(std::size_t i) const { return value.get<List>()[i].get<Tensor>().view(); }
};

void expect_error(const Value& root, ErrorCode code, const std::string& part) {
  StringSink sink;
  try {
    write_torch_file(sink, root);
    ADD_FAILURE() << "no error, expected: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(e.message().find(part), std::string::npos) << e.what();
  }
  EXPECT_TRUE(sink.text.empty()) << "bytes were written before the state was checked";
}

TEST(WriteTorchFile, RecordsAreTorchsInTorchsOrder) {
  TorchWriteOptions options;
  options.archive_name = "model";
  options.alignment = 256;
  const std::string bytes = written(List{iota(DType::kInt8, {3}), iota(DType::kInt8, {4})}, options);
  const ZipReader zip(memory_source(as_bytes(bytes)), {});
  std::vector<std::string> names;
  for (const ZipEntry& e : zip.entries()) {
    names.push_back(e.name);
    EXPECT_EQ(e.data_offset % 256, 0U) << e.name;
    EXPECT_TRUE(zip.verify(e));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"model/data.pkl", "model/.format_version", "model/.storage_alignment",
                                      "model/byteorder", "model/data/0", "model/data/1", "model/version",
                                      "model/.data/serialization_id"}));
  EXPECT_EQ(zip.read(*zip.find(".format_version"), 100), "1");
  EXPECT_EQ(zip.read(*zip.find(".storage_alignment"), 100), "256");
  EXPECT_EQ(zip.read(*zip.find("byteorder"), 100), "little");
  EXPECT_EQ(zip.read(*zip.find("version"), 100), "3\n");
  const std::string id = zip.read(*zip.find(".data/serialization_id"), 100);
  EXPECT_EQ(id.size(), 40U);
  EXPECT_EQ(id.find_first_not_of("0123456789"), std::string::npos);
}

TEST(WriteTorchFile, SameStateGivesTheSameBytesAndAnotherGivesAnotherId) {
  const std::string a = written(iota(DType::kFloat32, {4})), b = written(iota(DType::kFloat32, {4}));
  EXPECT_EQ(a, b);
  const auto id = [](const std::string& bytes) {
    const ZipReader zip(memory_source(as_bytes(bytes)), {});
    return zip.read(*zip.find(".data/serialization_id"), 100);
  };
  EXPECT_NE(id(a), id(written(Tensor::zeros(DType::kFloat32, {4}))));
}

TEST(WriteTorchFile, PlainValuesComeBack) {
  const Value root = Dict{{"none", None{}},
                          {"bools", List{true, false}},
                          {"ints", List{0, -1, 255, 256, 65535, 65536, INT64_MAX, INT64_MIN}},
                          {"big", BigInt{std::string(8, '\0') + '\x01'}},
                          {"floats", Tuple{{0.1, -0.0, 1e300}}},
                          {"text", "it's \u00e9"},
                          {"bytes", Bytes{std::string("a\0\xff", 3)}},
                          {"empty", List{List{}, Tuple{}, Dict{}, "", Bytes{}}},
                          {std::int64_t{7}, Dict{{std::int64_t{-1}, 1}}}};
  EXPECT_EQ(Back(root).value, root);
}

TEST(WriteTorchFile, EveryTypeComesBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{5}, Shape{2, 3}, Shape{2, 1, 3, 2, 2}}) {
      const Value root = iota(dtype, shape);
      EXPECT_EQ(Back(root).value, root) << name_of(dtype) << to_string(shape);
    }
  }
}

TEST(WriteTorchFile, DenseTensorsKeepTheirStrides) {
  const Tensor t = iota(DType::kInt16, {2, 3, 4});
  const Tensor permuted = view_of(t, 0, {4, 2, 3}, {1, 12, 4});
  const Back back(List{permuted});
  EXPECT_EQ(back.at(0).strides, (Shape{1, 12, 4}));
  EXPECT_EQ(back.value, Value(List{permuted}));
  EXPECT_EQ(back.storage_bytes(0), 48U);
}

TEST(WriteTorchFile, ExpandedTensorIsNotUnfolded) {
  const Tensor expanded = view_of(iota(DType::kInt64, {1}), 0, {1000, 1000}, {0, 0});
  const Back back(List{expanded});
  EXPECT_EQ(back.storage_bytes(0), 8U);
  EXPECT_EQ(back.at(0).strides, (Shape{0, 0}));
  EXPECT_EQ(back.value, Value(List{expanded}));
}

TEST(WriteTorchFile, LoneTensorWithHolesIsPacked) {
  const Tensor t = iota(DType::kFloat32, {100, 100});
  const Tensor column = view_of(t, 7, {100}, {100});
  const Back back(List{column});
  EXPECT_EQ(back.storage_bytes(0), 400U);
  EXPECT_EQ(back.at(0).strides, (Shape{1}));
  EXPECT_EQ(back.value, Value(List{column}));
}

TEST(WriteTorchFile, SmallViewOfALargeBufferCostsOnlyItsOwnBytes) {
  const Tensor row = view_of(iota(DType::kFloat32, {100, 100}), 300, {100}, {1});
  EXPECT_EQ(Back(List{row}).storage_bytes(0), 400U);
}

TEST(WriteTorchFile, NegativeStridesAreUnrolled) {
  const Tensor reversed = view_of(iota(DType::kInt32, {5}), 4, {5}, {-1});
  const Back back(List{reversed});
  EXPECT_EQ(back.at(0).strides, (Shape{1}));
  EXPECT_EQ(back.value, Value(List{reversed}));
}

TEST(WriteTorchFile, OverlappingTensorsShareAStorage) {
  const Tensor t = iota(DType::kFloat32, {4, 5});
  const Value root =
      List{view_of(t, 5, {10}, {1}), t, view_of(t, 3, {4}, {5}), iota(DType::kFloat32, {4, 5})};
  const Back back(root);
  EXPECT_EQ(back.value, root);
  EXPECT_EQ(back.storages(), 2U);
  EXPECT_EQ(back.storage_bytes(0), 80U);
  EXPECT_EQ(back.at(0).data, back.at(1).data + 20);
  EXPECT_EQ(back.at(2).data, back.at(1).data + 12);
  EXPECT_EQ(back.at(2).strides, (Shape{5}));
}

TEST(WriteTorchFile, OverlapCountsEvenWithoutAnOwner) {
  const Tensor t = iota(DType::kFloat32, {4});
  EXPECT_EQ(Back(List{Tensor(t.view(), nullptr), t}).storages(), 1U);
}

TEST(WriteTorchFile, PiecesOfOneBufferShareItsStorage) {
  const Tensor flat = iota(DType::kFloat32, {6});
  const Tensor a = view_of(flat, 0, {2}, {1}), b = view_of(flat, 2, {4}, {1});
  EXPECT_EQ(Back(List{b, a}).storages(), 1U);
  // Side by side by chance: nobody owns both.
  EXPECT_EQ(Back(List{Tensor(b.view(), nullptr), Tensor(a.view(), nullptr)}).storages(), 2U);
  // A gap between them.
  EXPECT_EQ(Back(List{a, view_of(flat, 3, {3}, {1})}).storages(), 2U);
}

TEST(WriteTorchFile, SharedMemoryOfSeveralTypesIsWrittenUntyped) {
  const Tensor floats = iota(DType::kFloat32, {4});
  TensorView as_ints = TensorView::contiguous(floats.view().data + 4, DType::kInt16, {4});
  const Value root = List{floats, Tensor(as_ints, floats.owner())};
  const Back back(root);
  EXPECT_EQ(back.value, root);
  EXPECT_EQ(back.storages(), 1U);
  EXPECT_EQ(back.at(1).data, back.at(0).data + 4);
}

TEST(WriteTorchFile, OverlapAtAnOddByteIsNotShared) {
  const Tensor bytes = iota(DType::kUInt8, {16});
  TensorView odd = TensorView::contiguous(bytes.view().data + 1, DType::kUInt8, {8});
  odd.dtype = DType::kInt16;
  odd.shape = {4};
  const Back back(List{bytes, Tensor(odd, bytes.owner())});
  EXPECT_EQ(back.storages(), 2U);
  EXPECT_EQ(std::memcmp(back.at(1).data, odd.data, 8), 0);
}

TEST(WriteTorchFile, ManySharedPiecesArePlannedQuickly) {
  const Tensor flat = iota(DType::kUInt8, {50'000});
  List pieces;
  for (int i = 0; i < 50'000; ++i) pieces.emplace_back(view_of(flat, i, {1}, {1}));
  const Value root = std::move(pieces);
  const TorchStorages plan = plan_storages(root);
  EXPECT_EQ(plan.storages.size(), 1U);
  EXPECT_EQ(plan.tensors.at(&root.get<List>()[777]).offset, 777U);
}

TEST(WriteTorchFile, OpaqueObjectsAreCopiedVerbatim) {
  StringSink sink;
  pickle::Writer w(sink, 2);
  w.global("my.module", "Thing");
  w.tuple(0);
  w.reduce();
  w.finish();
  const Value root =
      Dict{{"a", iota(DType::kInt8, {2})}, {"thing", Opaque{"my.module.Thing", sink.text}}, {"z", 1}};
  const Value back = Back(root).value;
  EXPECT_EQ(back.get<Dict>().find("thing")->get<Opaque>().class_name, "my.module.Thing");
  EXPECT_EQ(*back.get<Dict>().find("z"), Value(1));
}

TEST(WriteTorchFile, OpaqueThatRefersToAnotherFilesStoragesIsRefused) {
  StringSink sink;
  pickle::Writer w(sink, 2);
  w.string("0");
  w.persid();
  w.finish();
  expect_error(List{Opaque{"my.Sparse", sink.text}}, ErrorCode::kUnsupported, "my.Sparse");
}

TEST(WriteTorchFile, TensorsThatAreNotHereAreRefused) {
  expect_error(List{ShardedTensor{}}, ErrorCode::kInvalidArgument, "whole tensors");
  expect_error(Dict{{"a", StoredTensor{}}}, ErrorCode::kInvalidArgument, "whole tensors");
  expect_error(Tensor{}, ErrorCode::kInvalidArgument, "no memory");
  TensorView cuda = iota(DType::kInt8, {2}).view();
  cuda.device.kind = Device::Kind::kCuda;
  expect_error(Tensor(cuda, nullptr), ErrorCode::kInvalidArgument, "CPU");
}

TEST(WriteTorchFile, ValueNestedTooDeeplyIsRefused) {
  Value v = 1;
  for (int i = 0; i < 1001; ++i) {
    List around;
    around.push_back(std::move(v));
    v = std::move(around);
  }
  expect_error(v, ErrorCode::kLimit, "nested");
}

TEST(TorchDType, StorageClassesAndTypesAreInverse) {
  int typed = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (const auto name = storage_class(dtype)) {
      ++typed;
      EXPECT_EQ(dtype_of_storage_class(*name), dtype);
    }
    EXPECT_EQ(dtype_of_torch_global("torch", name_of(dtype)), dtype);
  }
  EXPECT_EQ(typed, 12);
  EXPECT_EQ(storage_class(DType::kFloat32), "FloatStorage");
  EXPECT_EQ(storage_class(DType::kUInt16), std::nullopt);
  EXPECT_EQ(dtype_of_storage_class("QInt8Storage"), std::nullopt);
  EXPECT_EQ(dtype_of_torch_global("numpy", "float32"), std::nullopt);
  EXPECT_EQ(dtype_of_torch_global("torch", "half"), DType::kFloat16);
  EXPECT_TRUE(is_untyped_storage_class("UntypedStorage"));
  EXPECT_FALSE(is_untyped_storage_class("FloatStorage"));
}

}  // namespace torch_write_test
}  // namespace cairn
