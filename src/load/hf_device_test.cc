// Hugging Face directories and tensors in a device's memory.
#include <gtest/gtest.h>

#include "cairn/hugging_face.h"
#include "format/safetensors.h"
#include "testing/async.h"
#include "testing/dcp.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

struct HfDevice : testing::Test {
  std::shared_ptr<SimulatedDriver> device =
      std::make_shared<SimulatedDriver>(SimulatedOptions{.copy_time = 100us});
  std::shared_ptr<FileSystem> files = memory_file_system();

  Tensor on_device(const Tensor& tensor) {
    const Tensor there = device->tensor(tensor.view().dtype, tensor.view().shape);
    copy(tensor.view(), device->host_view(there.view()));
    return there;
  }
  void expect_on_device(const Tensor& there, const Tensor& wanted) {
    const Tensor here = Tensor::empty(wanted.view().dtype, wanted.view().shape);
    copy(device->host_view(there.view()), here.view());
    EXPECT_EQ(Value(here), Value(wanted));
  }
};

TEST_F(HfDevice, SavesFromADeviceAndLoadsToIt) {
  const Tensor large = numbered({1500, 1000}, 1), small = numbered({7}, 2);
  HfWriteOptions write;
  write.write.devices.driver = device;
  const auto writer = hf_writer(files, write);
  {
    const Tensor whole = on_device(large);
    StateDict state;
    state.set("columns", Value(Tensor(whole.view().narrow({{0, 10}, {1500, 700}}), whole.owner())));
    state.set("small", Value(on_device(small)));
    save(state, "", {.writer = writer.get()});
  }
  const Tensor wanted = Tensor::empty(DType::kInt32, {1500, 700});
  copy(large.view().narrow({{0, 10}, {1500, 700}}), wanted.view());
  StateDict target;
  const Tensor columns = device->tensor(DType::kInt32, {1500, 700}),
               other = device->tensor(DType::kInt32, {7});
  target.set("columns", Value(columns));
  target.set("small", Value(other));
  HfReadOptions read;
  read.read.devices.driver = device;
  const auto reader = hf_reader(files, read);
  load(target, "", {.reader = reader.get()});
  expect_on_device(columns, wanted);
  expect_on_device(other, small);
}

TEST_F(HfDevice, DequantisesToADevice) {
  Tensor codes = Tensor::empty(DType::kFloat8E4M3FN, {600, 500});
  std::uint32_t state = 1;
  for (std::byte& byte : codes.bytes())
    byte = static_cast<std::byte>((state = state * 1664525 + 1) >> 24 & 0x7e);
  StringSink sink;
  write_safetensors(sink, {{"x.weight", codes}, {"x.weight_scale_inv", arange({5, 4}, 1)}}, {});
  put_file(*files, "model.safetensors", sink.text);
  HfReadOptions read{.dequantize = Dequantize{DType::kFloat32, 128}};
  read.read.devices.driver = device;
  const auto load_to = [&](const Tensor& to) {
    StateDict target;
    target.set("x.weight", Value(to));
    const auto reader = hf_reader(files, read);
    load(target, "", {.reader = reader.get()});
  };
  const Tensor here = Tensor::zeros(DType::kFloat32, {600, 500}),
               there = device->tensor(DType::kFloat32, {600, 500});
  load_to(here);
  load_to(there);
  expect_on_device(there, here);
}

}  // namespace
}  // namespace cairn
