// Saving straight from a device's memory, and loading straight into it.
#include <gtest/gtest.h>

#include "testing/async.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

class DeviceSave : public testing::Test {
 protected:
  void TearDown() override {
    state = {};
    target = {};
    const SimulatedUse use = device->use();
    EXPECT_EQ(use.allocated, 0U);
    EXPECT_EQ(use.pinned, 0U);
    EXPECT_EQ(use.streams, 0);
    EXPECT_EQ(use.fences, 0);
  }

  // Adds a tensor to the state, on the device, and remembers what it holds.
  void add(const std::string& name, const Tensor& tensor, const Box& box) {
    const Tensor there = device->tensor(tensor.view().dtype, tensor.view().shape);
    copy(tensor.view(), device->host_view(there.view()));
    state.set(name, Value(Tensor(there.view().narrow(box), there.owner())));
    expected.emplace_back(name, clone(Tensor(tensor.view().narrow(box), tensor.owner())));
  }
  void add(const std::string& name, const Tensor& tensor) {
    add(name, tensor, Box::whole(tensor.view().shape));
  }
  void add_usual() {
    for (int i = 0; i < 40; ++i) add("small" + std::to_string(i), numbered({i % 5, i + 1}, i));
    add("scalar", numbered({}, 1));
    add("odd", numbered({1000003}, 2));
    add("large", numbered({3000, 3000}, 3));
    add("rows", numbered({2000, 1000}, 4), {{100, 0}, {1500, 1000}});
    add("columns", numbered({2000, 1000}, 5), {{0, 10}, {2000, 700}});
    add("thin", numbered({20000, 50}, 6), {{0, 10}, {20000, 3}});
    state.set("step", Value(12));
  }
  SaveOptions saving() const {
    SaveOptions options;
    options.write.devices.driver = device;
    options.write.durable = false;
    return options;
  }
  LoadOptions loading() const {
    LoadOptions options;
    options.read.devices.driver = device;
    options.read.verify = Verify::kFull;
    return options;
  }
  void expect_saved(const std::string& path) const {
    const StateDict loaded = load_into_new(path);
    for (const auto& [name, tensor] : expected) EXPECT_EQ(*loaded.find(name), Value(tensor)) << name;
  }
  // A state of tensors on the device, like the saved one, that hold nothing yet.
  void make_target(DType dtype = DType::kInt32) {
    for (const auto& [name, tensor] : expected)
      target.set(name, Value(device->tensor(dtype, tensor.view().shape)));
    target.set("step", Value(0));
  }
  void expect_loaded() {
    for (const auto& [name, tensor] : expected) {
      const Tensor& there = target.find(name)->get<Tensor>();
      const Tensor here = Tensor::empty(tensor.view().dtype, tensor.view().shape);
      if (here.view().numel() > 0) copy(device->host_view(there.view()), here.view());
      EXPECT_EQ(Value(here), Value(tensor)) << name;
    }
    EXPECT_EQ(*target.find("step"), Value(12));
  }

  std::shared_ptr<SimulatedDriver> device =
      std::make_shared<SimulatedDriver>(SimulatedOptions{.copy_time = 100us});
  StateDict state;
  StateDict target;
  std::vector<std::pair<std::string, Tensor>> expected;
  TestFolder folder;
};

TEST_F(DeviceSave, TensorsOfADeviceAreWritten) {
  add_usual();
  save(state, folder / "run", saving());
  expect_saved(folder / "run");
}

TEST_F(DeviceSave, ThePacedAndTheCompressedToo) {
  add("a", numbered({700000}, 1));
  add("columns", numbered({2000, 1000}, 5), {{0, 10}, {2000, 700}});
  SaveOptions options = saving();
  options.write.transforms = {"zstd"};
  save(state, folder / "packed", options);
  expect_saved(folder / "packed");
  options = saving();
  options.write.bytes_per_second = 100 << 20;
  options.write.strong_hashes = true;
  options.write.memory_budget = 1 << 20;
  save(state, folder / "paced", options);
  expect_saved(folder / "paced");
}

TEST_F(DeviceSave, WhatIsSavedIsWhatTheCallersStreamMade) {
  add("t", numbered({100000}, 1));
  const TensorView inside = device->host_view(state.find("t")->get<Tensor>().view());
  device->launch(
      nullptr, [=] { copy(numbered({100000}, 2).view(), inside); }, 20ms);
  save(state, folder / "run", saving());
  EXPECT_EQ(*load_into_new(folder / "run").find("t"), Value(numbered({100000}, 2)));
}

TEST_F(DeviceSave, CompressedTensorsThatAreLargerThanTheBudgetAreLoaded) {
  add_usual();
  SaveOptions options = saving();
  options.write.transforms = {"zstd"};
  save(state, folder / "packed", options);
  make_target();
  LoadOptions small = loading();
  small.read.memory_budget = 4 << 20;
  load(target, folder / "packed", small);
  expect_loaded();
}

TEST_F(DeviceSave, TensorsOfADeviceAreLoaded) {
  add_usual();
  save(state, folder / "run", saving());
  make_target();
  load(target, folder / "run", loading());
  expect_loaded();
}

TEST_F(DeviceSave, LoadedElementsConvert) {
  add_usual();
  save(state, folder / "run", saving());
  make_target(DType::kInt64);
  load(target, folder / "run", loading());
  expect_loaded();
}

TEST_F(DeviceSave, LoadsFillViewsAndNothingElse) {
  add("w", numbered({900, 800}, 3));
  add("small", numbered({9, 8}, 4));
  save(state, folder / "run", saving());
  std::vector<std::pair<Tensor, Tensor>> wholes;  // and what they hold
  for (const auto& [name, tensor] : expected) {
    const Shape& shape = tensor.view().shape;
    const Tensor whole = device->tensor(DType::kInt32, {shape[0] + 3, shape[1] + 5});
    const Box box{{2, 4}, {shape[0], shape[1]}};
    target.set(name, Value(Tensor(whole.view().narrow(box), whole.owner())));
    const Tensor before = clone(Tensor(device->host_view(whole.view()), nullptr));
    copy(tensor.view(), before.view().narrow(box));
    wholes.emplace_back(whole, before);
  }
  load(target, folder / "run", loading());
  for (const auto& [whole, after] : wholes)
    EXPECT_EQ(Value(clone(Tensor(device->host_view(whole.view()), nullptr))), Value(after));
}

TEST_F(DeviceSave, LoadsComeAfterTheCallersWork) {
  add("t", numbered({100000}, 1));
  save(state, folder / "run", saving());
  make_target();
  const TensorView inside = device->host_view(target.find("t")->get<Tensor>().view());
  device->launch(
      nullptr, [=] { copy(numbered({100000}, 2).view(), inside); }, 20ms);
  target.set("step", Value(12));
  LoadOptions options = loading();
  options.plan.allow_partial_load = true;
  load(target, folder / "run", options);
  expect_loaded();
}

TEST_F(DeviceSave, PinningRefusedIsNoError) {
  device->limit_pinning(0);
  add_usual();
  save(state, folder / "run", saving());
  make_target();
  load(target, folder / "run", loading());
  expect_loaded();
}

TEST_F(DeviceSave, AFailingDeviceIsAnError) {
  add("t", numbered({1000000}, 1));
  save(state, folder / "run", saving());
  device->fail_copies_from(2);
  EXPECT_EQ(error_of([&] { save(state, folder / "other", saving()); }).code(), ErrorCode::kIo);
  device->fail_copies_from(0);
  target.set("t", Value(device->tensor(DType::kInt32, {1000000})));
  device->fail_copies_from(2);
  EXPECT_EQ(error_of([&] { load(target, folder / "run", loading()); }).code(), ErrorCode::kIo);
  device->fail_copies_from(0);
}

TEST_F(DeviceSave, ReplicasShareTheirReads) {
  add("w", numbered({900, 800}, 3));
  save(state, folder / "run", saving());
  run_ranks(3, [&](Group& group) {
    StateDict mine;
    const Tensor there = device->tensor(DType::kInt32, {900, 800});
    mine.set("w", Value(there));
    LoadOptions options = loading();
    options.group = &group;
    options.plan.replicas = ReplicaReads::kReadOnce;
    load(mine, folder / "run", options);
    EXPECT_EQ(Value(clone(Tensor(device->host_view(there.view()), nullptr))), Value(numbered({900, 800}, 3)));
  });
}

}  // namespace
}  // namespace cairn
