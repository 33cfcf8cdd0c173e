#include "testing/errors.h"
#include "testing/hugging_face.h"

namespace cairn {
namespace {

Tensor bytes_of(DType dtype, Shape shape, int seed, int mask) {
  Tensor tensor = Tensor::empty(dtype, std::move(shape));
  std::uint32_t state = static_cast<std::uint32_t>(seed);
  for (std::byte& byte : tensor.bytes()) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>((state >> 24) & static_cast<std::uint32_t>(mask));
  }
  return tensor;
}

struct HfQuantized : HfStorage {
  const HfReadOptions options{.dequantize = Dequantize{DType::kFloat32, 16}};

  void write(const Shape& scales = {5, 3}) {
    put_file(*files, "a.safetensors",
             safetensors_bytes({{"x.weight", bytes_of(DType::kFloat8E4M3FN, {70, 40}, 1, 0x7e)},
                                {"y_blocks", bytes_of(DType::kUInt8, {6, 5, 4, 8}, 2, 0xff)},
                                {"plain", arange({3})}}));
    put_file(*files, "b.safetensors",
             safetensors_bytes({{"x.weight_scale_inv", arange(scales, 0.5F)},
                                {"y_scales", bytes_of(DType::kUInt8, {6, 5, 4}, 3, 0x7f)}}));
  }
  // A tensor cut over ranks, put together from what they loaded.
  void expect_same_when_cut(const std::string& name, const Tensor& whole) {
    const Shape shape = whole.view().shape;
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      for (const int ranks : {2, 3}) {
        const MeshLayout layout{{ranks}, {Placement::shard(static_cast<int>(d))}};
        run_ranks(ranks, [&](Group& group) {
          const Box box = layout.box(shape, group.rank());
          const Tensor mine = Tensor::zeros(DType::kFloat32, box.sizes);
          StateDict state;
          state.set(name, Value(layout.shard(mine, shape, group.rank())));
          const auto reader = hf_reader(files, options);
          load(state, "", {.group = &group, .reader = reader.get()});
          const Tensor wanted = Tensor::empty(DType::kFloat32, box.sizes);
          copy(whole.view().narrow(box), wanted.view());
          EXPECT_EQ(floats(mine), floats(wanted)) << name << " " << d;
        });
      }
    }
  }
};

TEST_F(HfQuantized, EveryCutOfATensorIsThatPartOfTheWhole) {
  write();
  const StateDict all = load_new(options);
  const Tensor x = all.find(Key("x.weight"))->get<Tensor>(), y = all.find(Key("y_blocks"))->get<Tensor>();
  EXPECT_EQ(x.view().shape, (Shape{70, 40}));
  EXPECT_EQ(y.view().shape, (Shape{6, 5, 64}));
  EXPECT_EQ(x.view().dtype, DType::kFloat32);
  EXPECT_EQ(floats(all.find(Key("plain"))->get<Tensor>()), (std::vector<float>{0, 1, 2}));
  expect_same_when_cut("x.weight", x);
  expect_same_when_cut("y_blocks", y);
  EXPECT_EQ(load_new().find(Key("x.weight"))->get<Tensor>().view().dtype, DType::kFloat8E4M3FN);
}

TEST_F(HfQuantized, ADestinationOfAnotherTypeIsConverted) {
  write();
  const StateDict all = load_new(options);
  StateDict state;
  const Tensor half = Tensor::zeros(DType::kFloat64, {70, 40});
  state.set("x.weight", Value(half));
  const auto reader = hf_reader(files, options);
  load(state, "", {.reader = reader.get()});
  const Tensor back = Tensor::empty(DType::kFloat32, {70, 40});
  copy(half.view(), back.view());
  EXPECT_EQ(floats(back), floats(all.find(Key("x.weight"))->get<Tensor>()));
}

TEST_F(HfQuantized, ScalesThatDoNotFitAreAnErrorThatNamesTensorAndFile) {
  write({5, 2});
  const Error error = error_of([&] { load_new(options); });
  EXPECT_TRUE(mentions(error, "x.weight") && mentions(error, "b.safetensors") && mentions(error, "[5, 3]"))
      << error.what();
}

TEST_F(HfQuantized, OtherSchemesAreUnsupported) {
  put_file(*files, "a.safetensors",
           safetensors_bytes({{"x.weight", bytes_of(DType::kFloat8E4M3FN, {2, 4, 4}, 1, 0x7e)},
                              {"x.weight_scale_inv", arange({1, 1})}}));
  EXPECT_TRUE(mentions(error_of([&] { load_new(options); }), "Unsupported quantization types"));
}

}  // namespace
}  // namespace cairn
