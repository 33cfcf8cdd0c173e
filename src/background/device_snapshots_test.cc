// Snapshots of one tensor in a device's memory where memory is short, cannot be pinned, or is kept.
#include <gtest/gtest.h>

#include "testing/async.h"
#include "testing/errors.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A device with one tensor of so many bytes, and how it is staged.
struct OneTensor {
  explicit OneTensor(std::int64_t bytes, const SimulatedOptions& options = {})
      : device(std::make_shared<SimulatedDriver>(options)) {
    state.set("t", Value(device->tensor(DType::kUInt8, {bytes})));
    staging.devices.driver = device;
  }

  std::shared_ptr<SimulatedDriver> device;
  StateDict state;
  StagingOptions staging;
};

Device::Kind place_of(const Snapshot& snapshot) {
  return snapshot.state.find("t")->get<Tensor>().view().device.kind;
}

TEST(DeviceSnapshots, AFullDeviceIsALimit) {
  OneTensor one(24 << 20, {.memory = 96 * kMiB});
  one.staging.place = SnapshotPlace::kDevice;
  const auto stager = default_stager(one.staging);
  const Error e = error_of([&] { stager->stage(one.state, {}); });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
  EXPECT_TRUE(mentions(e, "75497472 are free")) << e.what();
  one.staging.place = SnapshotPlace::kAuto;
  one.staging.device_budget = 90 * kMiB;
  EXPECT_EQ(place_of(default_stager(one.staging)->stage(one.state, {})), Device::Kind::kCpu);
}

TEST(DeviceSnapshots, AnAllocationThatFailsFailsTheSnapshot) {
  OneTensor one(1 << 20);
  one.staging.place = SnapshotPlace::kDevice;
  const auto stager = default_stager(one.staging);
  one.device->fail_allocations(true);
  const Snapshot snapshot = stager->stage(one.state, {.overlapped = true});
  EXPECT_EQ(error_of([&] { snapshot.whole.get(); }).code(), ErrorCode::kLimit);
}

TEST(DeviceSnapshots, TheBudgetOfADeviceIsKept) {
  OneTensor one(4 << 20);
  one.staging.place = SnapshotPlace::kDevice;
  one.staging.device_budget = 6 * kMiB;
  const auto stager = default_stager(one.staging);
  auto held = std::make_unique<Snapshot>(stager->stage(one.state, {}));
  EXPECT_EQ(place_of(*held), Device::Kind::kCuda);
  EXPECT_EQ(one.device->use().allocated, 8 * kMiB);
  EXPECT_EQ(error_of([&] { stager->stage(one.state, {.deadline = Clock::time_point()}); }).code(),
            ErrorCode::kLimit);
  EXPECT_EQ(error_of([&] { stager->stage(one.state, {.deadline = Clock::now() + 10ms}); }).code(),
            ErrorCode::kTimeout);
  held.reset();
  EXPECT_EQ(one.device->use().allocated, 4 * kMiB);
  one.staging.place = SnapshotPlace::kAuto;
  one.staging.device_budget = 3 * kMiB;
  EXPECT_EQ(place_of(default_stager(one.staging)->stage(one.state, {})), Device::Kind::kCpu);
}

TEST(DeviceSnapshots, PinningCanBeRequired) {
  OneTensor one(4 << 20);
  one.device->limit_pinning(0);
  one.staging.require_pinning = true;
  const auto stager = default_stager(one.staging);
  const Error e = error_of([&] { stager->stage(one.state, {}); });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
  EXPECT_TRUE(mentions(e, "ulimit -l")) << e.what();
  EXPECT_EQ(error_of([&] { stager->prepare(one.state); }).code(), ErrorCode::kLimit);
}

TEST(DeviceSnapshots, MemoryIsPinnedOnceAndKept) {
  const OneTensor one(40 << 20);
  const auto stager = default_stager(one.staging);
  for (int i = 0; i < 5; ++i) {
    (void)stager->stage(one.state, {});
    EXPECT_EQ(one.device->use().pinned, 40 * kMiB);
  }
}

// A ring's copies are of 2 MiB at most, those to pinned memory of a cell.
TEST(DeviceSnapshots, OnlyTheFirstPassesThroughTheRing) {
  const OneTensor one(40 << 20);
  const auto stager = default_stager(one.staging);
  (void)stager->stage(one.state, {});
  const std::uint64_t first = one.device->use().copies;
  EXPECT_GE(first, 20U);
  (void)stager->stage(one.state, {});
  EXPECT_EQ(one.device->use().copies - first, 2U);
}

TEST(DeviceSnapshots, WithoutRoomTheLiveStateIsWritten) {
  const auto device = std::make_shared<SimulatedDriver>();
  const Tensor tensor = device->tensor(DType::kInt32, {1 << 20});
  copy(numbered({1 << 20}, 5).view(), device->host_view(tensor.view()));
  StateDict state;
  state.set("t", Value(tensor));
  const SlowPlace place;
  const auto writer = dcp_writer(place.files, {.files_per_rank = 1, .devices = {device}});
  AsyncOptions saving;
  saving.staging.devices.driver = device;
  saving.staging.budget = kMiB;
  saving.on_full = OnFull::kWriteThrough;
  saving.save.writer = writer.get();
  AsyncSaver saver(saving);
  const SaveHandle handle = saver.async_save(state, "memory");
  EXPECT_TRUE(handle.written_through());
  handle.wait();
  EXPECT_EQ(*place.load().find("t"), Value(numbered({1 << 20}, 5)));
}

}  // namespace
}  // namespace cairn
