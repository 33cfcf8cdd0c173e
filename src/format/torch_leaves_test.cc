#include "format/torch_leaves.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cairn/error.h"
#include "testing/torch_archive.h"

namespace cairn {
namespace torch_leaves_test {

using namespace torch_archive;

TEST(TorchLeaves, ObjectMetTwiceInThePickleIsOneTensor) {
  const std::string program = pickled([](pickle::Writer& w) {
    w.empty_list();
    w.mark();
    write_tensor(w, {});
    w.appends();
  });
  // Memoise the tensor behind its REDUCE and append it a second time.
  std::string twice = program.substr(0, program.size() - 2) + "q\x50h\x50" + "e.";
  const Opened o(with("data.pkl", twice));
  EXPECT_EQ(o.file->root().get<List>().size(), 2U);
  EXPECT_EQ(o.file->tensors().size(), 1U);
}

TEST(TorchLeaves, ReadsTensorsWithoutStorageClassByTheirNamedType) {
  Spec s;
  s.function = "_rebuild_tensor_v3";
  s.storage_class = "UntypedStorage";
  s.numel = 24;
  s.dtype = "uint16";
  s.size = {12};
  s.stride = {1};
  EXPECT_EQ(Opened(with(s)).file->root().get<StoredTensor>().dtype, DType::kUInt16);
}

TEST(TorchLeaves, ReadsParameters) {
  for (const std::string name : {"_rebuild_parameter", "_rebuild_parameter_with_state"}) {
    const Opened o(with("data.pkl", pickled([&](pickle::Writer& w) {
                          w.global("torch._utils", name);
                          w.mark();
                          write_tensor(w, {});
                          w.boolean(true);
                          w.value(Dict{});
                          if (name != "_rebuild_parameter") w.value(Dict{{"note", 1}});
                          w.tuple();
                          w.reduce();
                        })));
    const auto& stored = o.file->root().get<StoredTensor>();
    EXPECT_TRUE(stored.parameter);
    EXPECT_TRUE(stored.requires_grad);
    EXPECT_EQ(o.file->tensors().at(stored.id).tensor, stored);
  }
}

TEST(TorchLeaves, ParameterMadeFromTooFewArgumentsIsRefused) {
  const Records records = with("data.pkl", pickled([&](pickle::Writer& w) {
                                 w.global("torch._utils", "_rebuild_parameter");
                                 write_tensor(w, {});
                                 w.tuple(1);
                                 w.reduce();
                               }));
  expect_error([&] { Opened o(records); }, ErrorCode::kCorrupt, "fewer than 3");
}

TEST(TorchLeaves, UnknownTensorsStayOpaque) {
  Spec quantised;
  quantised.storage_class = "QInt8Storage";
  quantised.numel = 24;
  Spec conjugated;
  conjugated.metadata = "conj";
  Spec unknown;
  unknown.function = "_rebuild_sparse_tensor";
  Spec bits;
  bits.function = "_rebuild_tensor_v3";
  bits.storage_class = "UntypedStorage";
  bits.numel = 24;
  bits.dtype = "bits16";
  for (const Spec& s : {quantised, conjugated, unknown, bits}) {
    const Opened o(with(s));
    EXPECT_EQ(o.file->root().get<Opaque>().class_name, "torch._utils." + s.function);
    EXPECT_TRUE(o.file->tensors().empty());
  }
}

TEST(TorchLeaves, EmptyTensorMayStartPastTheEndOfItsStorage) {
  Spec s;
  s.size = {0, 3};
  s.offset = 7;
  const Opened o(with(s));
  EXPECT_EQ(o.file->load().get<Tensor>().view().shape, (Shape{0, 3}));
}

// Storages.

TEST(TorchLeaves, StorageWithoutRecordIsRefused) {
  Spec s;
  s.key = "1";
  expect_corrupt(s, "no record 'data/1'");
}
TEST(TorchLeaves, StorageOfAnotherSizeThanItsRecordIsRefused) {
  for (const std::int64_t numel : {5, 7, -6}) {
    Spec s;
    s.numel = numel;
    expect_corrupt(s, "its record has 24 bytes");
  }
}
TEST(TorchLeaves, StorageOfAbsurdSizeIsRefused) {
  Spec s;
  s.storage_class = "ComplexDoubleStorage";
  s.numel = (std::int64_t{1} << 59) - 1;
  expect_corrupt(s, "its record has 24 bytes");
  s.numel = INT64_MAX;
  expect_corrupt(s, "its record has 24 bytes");
}
TEST(TorchLeaves, StorageOfAClassThatIsNotTorchsIsRefused) {
  Spec s;
  s.storage = [](pickle::Writer& w) {
    w.mark();
    w.string("storage");
    w.global("os", "FloatStorage");
    w.string("0");
    w.string("cpu");
    w.integer(6);
    w.tuple();
    w.persid();
  };
  expect_corrupt(s, "class os.FloatStorage");
}
TEST(TorchLeaves, StorageThatIsNoPersistentIdIsRefused) {
  Spec s;
  s.storage = [](pickle::Writer& w) { w.none(); };
  expect_corrupt(s, "no storage");
}
TEST(TorchLeaves, OddPersistentIdsAreRefused) {
  const std::function<void(pickle::Writer&)> bad[] = {
      [](pickle::Writer& w) { w.string("storage"); },
      [](pickle::Writer& w) {
        w.value(Tuple{{"storage", 1}});
      },
      [](pickle::Writer& w) {
        w.value(Tuple{{"storage", "FloatStorage", "0", "cpu", 6}});
      },
      [](pickle::Writer& w) {
        w.mark();
        w.string("module");
        w.global("torch", "FloatStorage");
        w.string("0");
        w.string("cpu");
        w.integer(6);
        w.tuple();
      },
      [](pickle::Writer& w) {
        w.mark();
        w.string("storage");
        w.global("torch", "FloatStorage");
        w.integer(0);
        w.string("cpu");
        w.integer(6);
        w.tuple();
      }};
  for (const auto& write : bad) {
    Spec s;
    s.persid = write;
    expect_corrupt(s, "('storage', class, key, location, size)");
  }
}
TEST(TorchLeaves, UntypedStorageUnderATensorWithoutTypeIsRefused) {
  Spec s;
  s.storage_class = "UntypedStorage";
  s.numel = 24;
  expect_corrupt(s, "no element type");
}

// Tensors.

TEST(TorchLeaves, WrongNumberOfArgumentsIsRefused) {
  Spec s;
  s.function = "_rebuild_tensor_v3";  // lacks the type
  expect_corrupt(s, "6 arguments, not from 7");
  s.function = "_rebuild_tensor_v2";
  s.extra = [](pickle::Writer& w) {
    w.none();
    w.none();
  };
  expect_corrupt(s, "8 arguments, not from 6");
}
TEST(TorchLeaves, TypeThatIsNoNameIsRefused) {
  Spec s;
  s.function = "_rebuild_tensor_v3";
  s.dtype_argument = [](pickle::Writer& w) { w.string("float32"); };
  expect_corrupt(s, "not named");
}
TEST(TorchLeaves, SizeThatIsNoTupleIsRefused) {
  Spec s;
  s.sizes = [](pickle::Writer& w) { w.value(List{2, 3}); };
  expect_corrupt(s, "not a tuple");
}
TEST(TorchLeaves, SizeThatIsNoIntegerIsRefused) {
  Spec s;
  s.sizes = [](pickle::Writer& w) { w.value(Tuple{{2, 3.0}}); };
  expect_corrupt(s, "not an integer");
  s.sizes = [](pickle::Writer& w) { w.value(Tuple{{2, BigInt{std::string(9, '\x01')}}}); };
  expect_error([&] { Opened(with(s)); }, ErrorCode::kLimit, "64 bits");
}
TEST(TorchLeaves, NegativeSizeStrideOrOffsetIsRefused) {
  Spec s;
  s.size = {2, -3};
  expect_corrupt(s, "negative number, -3");
  s = {};
  s.stride = {3, -1};
  expect_corrupt(s, "negative number, -1");
  s = {};
  s.offset = -1;
  expect_corrupt(s, "starts at element -1");
}
TEST(TorchLeaves, StridesOfAnotherRankAreRefused) {
  Spec s;
  s.stride = {3, 1, 1};
  expect_corrupt(s, "2 dimensions and 3 strides");
}
TEST(TorchLeaves, RankIsLimited) {
  Limits limits;
  Spec s;
  s.size.assign(limits.tensor_rank, 1);
  s.stride = s.size;
  EXPECT_NO_THROW(Opened(with(s), limits));
  s.size.push_back(1);
  s.stride.push_back(1);
  expect_error([&] { Opened(with(s), limits); }, ErrorCode::kLimit, "65 dimensions");
}
TEST(TorchLeaves, TensorMustEndInsideItsStorage) {
  Spec s;
  s.size = {3};
  s.stride = {2};
  s.offset = 1;
  EXPECT_NO_THROW(Opened(with(s)));  // elements 1, 3, 5
  s.offset = 2;
  expect_corrupt(s, "reaches element 6 of storage '0', which has 6");
  s = {};
  s.offset = 1;
  expect_corrupt(s, "reaches element 6");
}
TEST(TorchLeaves, ElementTypeWiderThanTheStorageIsMeasuredInItsOwnSize) {
  Spec s;
  s.function = "_rebuild_tensor_v3";
  s.storage_class = "UntypedStorage";
  s.numel = 24;
  s.dtype = "complex128";
  s.size = {1};
  s.stride = {1};
  EXPECT_NO_THROW(Opened(with(s)));
  s.offset = 1;
  expect_corrupt(s, "which has 1");
}
TEST(TorchLeaves, ExtentThatOverflowsIsRefused) {
  Spec s;
  s.size = {1 << 20, 2};
  s.stride = {std::int64_t{1} << 58, 1};
  expect_corrupt(s, "which has 6");
}
TEST(TorchLeaves, NumberOfElementsThatOverflowsIsRefused) {
  Spec s;
  s.size = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  s.stride = {0, 0};
  expect_error([&] { Opened(with(s)); }, ErrorCode::kLimit, "");
}
TEST(TorchLeaves, FlagThatIsNoBoolIsRefused) {
  Spec s;
  s.flag = [](pickle::Writer& w) { w.integer(1); };
  expect_corrupt(s, "neither True nor False");
}

}  // namespace torch_leaves_test
}  // namespace cairn
