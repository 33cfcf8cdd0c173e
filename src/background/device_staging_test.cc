// Snapshots of tensors in a device's memory, wherever they go and whatever is refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "testing/async.h"
#include "testing/errors.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

// One way to stage, and what the system refuses on it.
struct Way {
  const char* name;
  SnapshotPlace place = SnapshotPlace::kHost;
  Pinning pinning = Pinning::kSnapshot;
  std::uint64_t pin_limit = UINT64_MAX;
  bool device_is_full = false;
};

const Way kWays[] = {
    {"Pinned"},
    {"Ring", SnapshotPlace::kHost, Pinning::kRing},
    {"Pageable", SnapshotPlace::kHost, Pinning::kNone},
    {"PinningRefused", SnapshotPlace::kHost, Pinning::kSnapshot, 0},
    {"RingIsAllThatIsPinned", SnapshotPlace::kHost, Pinning::kSnapshot, 5 << 20},
    {"OnDevice", SnapshotPlace::kDevice},
    {"Auto", SnapshotPlace::kAuto},
    {"AutoWhenTheDeviceIsFull", SnapshotPlace::kAuto, Pinning::kSnapshot, UINT64_MAX, true},
};

class DeviceStaging : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    device->limit_pinning(GetParam().pin_limit);
    device->fail_allocations(false);
  }
  void TearDown() override {
    const SimulatedUse use = device->use();
    EXPECT_EQ(use.allocated, 0U);
    EXPECT_EQ(use.pinned, 0U);
    EXPECT_EQ(use.streams, 0);
    EXPECT_EQ(use.fences, 0);
  }

  StagingOptions options(int threads = 3) const {
    StagingOptions staging;
    staging.threads = threads;
    staging.devices.driver = device;
    staging.place = GetParam().place;
    staging.pinning = GetParam().pinning;
    staging.device_budget = 512 * kMiB;
    return staging;
  }
  // From now on the device has no memory for snapshots.
  void fill_device() const { device->fail_allocations(GetParam().device_is_full); }

  // A tensor on the device with the elements of one that is not.
  Tensor on_device(const Tensor& tensor) const {
    const Tensor made = device->tensor(tensor.view().dtype, tensor.view().shape);
    copy(tensor.view(), device->host_view(made.view()));
    return made;
  }
  // The elements of a tensor, wherever it is, in memory of their own.
  Tensor elements(const Tensor& tensor) const {
    if (tensor.view().device.is_cpu()) return clone(tensor);
    return clone(Tensor(device->host_view(tensor.view()), tensor.owner()));
  }
  void overwrite(const Tensor& tensor) const {
    std::memset(device->host_view(tensor.view()).data, 0x5a, tensor.view().bytes());
  }
  // Stages a view of `storage` and expects its copy to be equal, and to stay so.
  void expect_staged(const Tensor& storage, const std::function<void(TensorView&)>& change) const {
    TensorView view = storage.view();
    change(view);
    const Tensor tensor(view, storage.owner());
    const Tensor before = elements(tensor);
    StateDict state;
    state.set("t", Value(tensor));
    const auto stager = default_stager(options());
    fill_device();
    const Snapshot snapshot = stager->stage(state, {});
    device->fail_allocations(false);
    const Tensor kept = elements(storage);
    overwrite(storage);
    EXPECT_EQ(Value(elements(snapshot.state.find("t")->get<Tensor>())), Value(before));
    copy(kept.view(), device->host_view(storage.view()));
  }

  std::shared_ptr<SimulatedDriver> device = std::make_shared<SimulatedDriver>(SimulatedOptions{.devices = 2});
};

INSTANTIATE_TEST_SUITE_P(Ways, DeviceStaging, testing::ValuesIn(kWays),
                         [](const auto& way) { return way.param.name; });

TEST_P(DeviceStaging, CopiesViewsOfAnyStrides) {
  const Tensor whole = on_device(numbered({64, 48}, 3));
  expect_staged(whole, [](TensorView&) {});
  expect_staged(whole, [](TensorView& v) {
    std::swap(v.shape[0], v.shape[1]);
    std::swap(v.strides[0], v.strides[1]);
  });
  expect_staged(whole, [](TensorView& v) { v = v.narrow({{3, 5}, {40, 7}}); });
  expect_staged(whole, [](TensorView& v) { v = v.narrow({{3, 5}, {40, 30}}); });
  expect_staged(whole, [](TensorView& v) { v = v.narrow({{8, 0}, {4, 48}}); });
  expect_staged(whole, [](TensorView& v) { v = v.narrow({{0, 11}, {64, 1}}); });
  expect_staged(whole, [](TensorView& v) {
    v.data += 63 * 48 * 4;
    v.strides[0] = -48;
  });
  expect_staged(whole, [](TensorView& v) {
    v.shape = {1000, 48};
    v.strides[0] = 0;
  });
  expect_staged(whole, [](TensorView& v) {
    v.shape = {4, 8, 20};
    v.strides = {700, 40, 2};
  });
  expect_staged(on_device(numbered({}, 5)), [](TensorView&) {});
}

TEST_P(DeviceStaging, LargeTensorsReachOverManyCells) {
  const Tensor whole = on_device(numbered({5000, 4500}, 9));  // 86 MiB
  expect_staged(whole, [](TensorView&) {});
  expect_staged(whole, [](TensorView& v) { v = v.narrow({{0, 100}, {5000, 4300}}); });
}

TEST_P(DeviceStaging, DevicesAndTheCpuTogether) {
  StateDict state;
  for (int i = 0; i < 30; ++i) {
    const Tensor tensor = numbered({i + 1, 1000}, i);
    const Tensor there = device->tensor(DType::kInt32, {i + 1, 1000}, i % 2);
    copy(tensor.view(), device->host_view(there.view()));
    state.set("there" + std::to_string(i), Value(there));
    state.set("here" + std::to_string(i), Value(tensor));
  }
  const auto stager = default_stager(options());
  fill_device();
  const Snapshot snapshot = stager->stage(state, {.overlapped = true});
  snapshot.whole.get();
  EXPECT_EQ(snapshot.copied->load(), 2U * 465 * 4000);
  for (int i = 0; i < 30; ++i) {
    const Value expected(numbered({i + 1, 1000}, i));
    for (const std::string name : {"there", "here"})
      EXPECT_EQ(Value(elements(snapshot.state.find(name + std::to_string(i))->get<Tensor>())), expected) << i;
  }
}

TEST_P(DeviceStaging, SmallTensorsTakeFewCalls) {
  StateDict state;
  for (int i = 0; i < 500; ++i) state.set(std::to_string(i), Value(on_device(numbered({i % 7 + 1}, i))));
  const auto stager = default_stager(options());
  fill_device();
  (void)stager->stage(state, {});
  EXPECT_LE(device->use().copies, 500U);
}

TEST_P(DeviceStaging, WhatIsSavedIsWhatTheStateWasAtTheCall) {
  constexpr unsigned kSeed = 20261116;
  device->set_copy_time(200us);
  ChangingState training(kSeed, device);
  std::array<SlowPlace, 2> places;
  std::array<DefaultSavePlanner, 2> planners = {DefaultSavePlanner({.enable_plan_caching = true}),
                                                DefaultSavePlanner({.enable_plan_caching = true})};
  AsyncOptions saving;
  saving.staging = options();
  AsyncSaver saver(saving);
  for (std::size_t i = 0; i < 60; ++i) {
    SaveOptions save = places[i % 2].save();
    const auto writer = dcp_writer(places[i % 2].files, {.files_per_rank = 1, .devices = {device}});
    save.writer = writer.get();
    save.planner = &planners[i % 2];
    const auto content = training.content();
    fill_device();
    const SaveHandle handle = saver.async_save(training.state(), i % 2 == 0 ? "even" : "odd", save);
    device->fail_allocations(false);
    training.change();
    handle.wait();
    expect_content(places[i % 2].load(), content);
    if (HasFatalFailure()) FAIL() << "save " << i << ", seed " << kSeed;
  }
}

TEST_P(DeviceStaging, OverlappedSnapshotsAreGuarded) {
  device->set_copy_time(500us);
  const SlowPlace place;
  const auto writer = dcp_writer(place.files, {.files_per_rank = 1, .devices = {device}});
  AsyncOptions saving;
  saving.staging = options();
  saving.mode = StagingMode::kOverlapped;
  saving.save.writer = writer.get();
  AsyncSaver saver(saving);
  StateDict state;
  const Tensor tensor = on_device(numbered({3 << 20}, 0));
  state.set("t", Value(tensor));
  for (int i = 0; i < 6; ++i) {
    const Tensor expected = elements(tensor);
    fill_device();
    const SaveHandle handle = saver.async_save(state, "memory");
    {
      const StepGuard guard = i % 2 == 0 ? handle.guard() : saver.guard();
      EXPECT_TRUE(handle.staging_done());
      std::memset(device->host_view(tensor.view()).data, i + 1, tensor.view().bytes());
    }
    device->fail_allocations(false);
    handle.wait();
    EXPECT_EQ(*place.load().find("t"), Value(expected)) << i;
  }
}

TEST_P(DeviceStaging, CopiesComeAfterTheCallersWork) {
  const Tensor tensor = on_device(numbered({1000}, 1));
  StateDict state;
  state.set("t", Value(tensor));
  for (void* stream : {static_cast<void*>(nullptr), device->open_callers_stream()}) {
    StagingOptions staging = options();
    staging.devices.stream = stream;
    const auto stager = default_stager(staging);
    const int seed = stream == nullptr ? 2 : 3;
    const TensorView inside = device->host_view(tensor.view());
    device->launch(
        stream, [=] { copy(numbered({1000}, seed).view(), inside); }, 20ms);
    fill_device();
    const Snapshot snapshot = stager->stage(state, {.overlapped = true});
    snapshot.whole.get();
    device->fail_allocations(false);
    EXPECT_EQ(Value(elements(snapshot.state.find("t")->get<Tensor>())), Value(numbered({1000}, seed)));
  }
}

TEST_P(DeviceStaging, AFailingDeviceFailsTheSave) {
  const SlowPlace place;
  const auto writer = dcp_writer(place.files, {.files_per_rank = 1, .devices = {device}});
  save(large_state(2, 1), "memory", place.save());
  AsyncOptions saving;
  saving.staging = options();
  saving.save.writer = writer.get();
  saving.mode = StagingMode::kOverlapped;
  StateDict state;
  state.set("t", Value(on_device(numbered({3 << 20}, 0))));
  AsyncSaver saver(saving);
  device->fail_copies_from(1);
  fill_device();
  const SaveHandle handle = saver.async_save(state, "memory");
  EXPECT_EQ(error_of([&] { handle.wait_staged(); }).code(), ErrorCode::kIo);
  EXPECT_EQ(error_of([&] { handle.wait(); }).code(), ErrorCode::kIo);
  device->fail_copies_from(0);
  device->fail_allocations(false);
  EXPECT_EQ(*place.load().find("version"), Value(1));
  saver.async_save(state, "memory").wait();
  EXPECT_EQ(*place.load().find("t"), Value(numbered({3 << 20}, 0)));
}

// Changes memory without an instruction of this process that touches it.
void change_quietly(const std::byte* at, std::uint64_t number) {
  const int memory = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(
      ::pwrite(memory, &number, sizeof number, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(at))), 8);
  ::close(memory);
}

TEST_P(DeviceStaging, ComparisonNamesWhatChanged) {
  StateDict state;
  const Tensor moving = on_device(numbered({3 << 20}, 1));
  state.set("still", Value(on_device(numbered({100}, 1))));
  state.set("moving", Value(moving));
  StagingOptions staging = options();
  staging.compare = true;
  const auto stager = default_stager(staging);
  fill_device();
  EXPECT_NO_THROW(stager->stage(state, {}));
  std::atomic<bool> stop = false;
  std::thread other([&, at = device->host_view(moving.view()).data] {
    for (std::uint64_t i = 0; !stop; ++i) change_quietly(at + (4 << 20), i);
  });
  std::optional<Error> seen;
  for (int i = 0; i < 200 && !seen; ++i) {
    try {
      stager->stage(state, {});
    } catch (const Error& e) {
      seen = e;
    }
  }
  stop = true;
  other.join();
  device->fail_allocations(false);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(*seen, "'moving'"));
  EXPECT_FALSE(mentions(*seen, "'still'"));
}

TEST_P(DeviceStaging, PreparedMemoryIsUsed) {
  StateDict state;
  state.set("t", Value(on_device(numbered({10 << 20}, 1))));
  const auto stager = default_stager(options());
  fill_device();
  stager->prepare(state);
  const std::uint64_t pinned = device->use().pinned;
  if (GetParam().place == SnapshotPlace::kHost && GetParam().pinning == Pinning::kSnapshot) {
    EXPECT_EQ(pinned > 0, GetParam().pin_limit > 40 * kMiB);
  }
  (void)stager->stage(state, {});
  if (pinned > 0) {
    EXPECT_EQ(device->use().most_pinned, pinned);
  }
  device->fail_allocations(false);
  stager->close();
  EXPECT_EQ(device->use().pinned, 0U);
}

}  // namespace
}  // namespace cairn
