// One suite for every driver. CUDA's runs where there is a device.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "device/device_reader.h"
#include "device/device_sender.h"
#include "device/row_copies.h"
#include "testing/errors.h"
#include "testing/simulated.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

enum class Kind { kSimulated, kCuda };

class EveryDriver : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kSimulated) {
      simulated = std::make_shared<SimulatedDriver>(SimulatedOptions{.copy_time = 50us});
      driver = simulated;
      return;
    }
    try {
      driver = cuda_driver();
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
  void TearDown() override {
    if (simulated == nullptr) return;
    const SimulatedUse use = simulated->use();
    EXPECT_EQ(use.allocated, 0U);
    EXPECT_EQ(use.pinned, 0U);
    EXPECT_EQ(use.streams, 0);
    EXPECT_EQ(use.fences, 0);
  }

  std::vector<std::byte> random_bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }
  void to_device(const std::vector<std::byte>& bytes, std::byte* on_device) const {
    const auto stream = driver->open_stream(0);
    stream->begin(CopyWay::kToDevice, {.from = bytes.data(), .to = on_device, .row = bytes.size()});
    stream->wait(stream->mark());
  }
  std::vector<std::byte> from_device(const std::byte* on_device, std::size_t count) const {
    std::vector<std::byte> bytes(count);
    const auto stream = driver->open_stream(0);
    stream->begin(CopyWay::kToHost, {.from = on_device, .to = bytes.data(), .row = count});
    stream->wait(stream->mark());
    return bytes;
  }
  // A tensor on the device with the given bytes.
  Tensor on_device(DType dtype, const Shape& shape, const std::vector<std::byte>& bytes) const {
    TensorView view = TensorView::contiguous(nullptr, dtype, shape);
    const std::shared_ptr<std::byte> memory = driver->allocate(0, view.bytes());
    to_device(bytes, memory.get());
    view.data = memory.get();
    view.device = {Device::Kind::kCuda, 0};
    return {view, memory};
  }
  std::vector<std::byte> read_all(const TensorView& tensor, const RingOptions& ring) const {
    DeviceReader reader(driver, 0, driver->open_stream(0), ring);
    std::vector<std::byte> all;
    reader.begin(tensor);
    for (ByteSpan piece = reader.next(); !piece.empty(); piece = reader.next())
      all.insert(all.end(), piece.begin(), piece.end());
    return all;
  }

  std::shared_ptr<DeviceDriver> driver;
  std::shared_ptr<SimulatedDriver> simulated;
  std::mt19937 random_{20261115};
};

INSTANTIATE_TEST_SUITE_P(Drivers, EveryDriver, testing::Values(Kind::kSimulated, Kind::kCuda),
                         [](const auto& kind) { return kind.param == Kind::kCuda ? "Cuda" : "Simulated"; });

TEST_P(EveryDriver, BytesGoThereAndBack) {
  const auto bytes = random_bytes(3 << 20);
  const auto memory = driver->allocate(0, bytes.size());
  to_device(bytes, memory.get());
  EXPECT_EQ(from_device(memory.get(), bytes.size()), bytes);
  const auto other = driver->allocate(0, bytes.size());
  const auto stream = driver->open_stream(0);
  stream->begin(CopyWay::kOnDevice, {.from = memory.get(), .to = other.get(), .row = bytes.size()});
  stream->wait(stream->mark());
  EXPECT_EQ(from_device(other.get(), bytes.size()), bytes);
}

TEST_P(EveryDriver, PinnedMemoryIsCopiedInTheBackground) {
  const auto bytes = random_bytes(1 << 20);
  const auto memory = driver->allocate(0, bytes.size());
  to_device(bytes, memory.get());
  PinnedMemory pinned(driver, 0, 4 << 20, true);
  const auto stream = driver->open_stream(0);
  std::vector<std::uint64_t> marks;
  for (std::size_t i = 0; i < 4; ++i) {
    stream->begin(CopyWay::kToHost,
                  {.from = memory.get(), .to = pinned.data() + (i << 20), .row = bytes.size()});
    marks.push_back(stream->mark());
  }
  EXPECT_TRUE(std::is_sorted(marks.begin(), marks.end()));
  for (std::size_t i = 0; i < 4; ++i) {
    stream->wait(marks[i]);
    EXPECT_EQ(std::memcmp(pinned.data() + (i << 20), bytes.data(), bytes.size()), 0) << i;
  }
  stream->wait(marks[1]);  // long ago
}

TEST_P(EveryDriver, RowsAndPlanesAreGathered) {
  const auto bytes = random_bytes(64 * 48 * 20);
  const Tensor whole = on_device(DType::kUInt8, {20, 48, 64}, bytes);
  for (const Box& box : {Box{{2, 3, 5}, {17, 30, 40}}, Box{{0, 0, 0}, {20, 48, 63}},
                         Box{{4, 7, 0}, {9, 1, 64}}, Box{{1, 2, 3}, {1, 1, 1}}, Box{{0, 4, 9}, {20, 1, 1}}}) {
    const TensorView part = whole.view().narrow(box);
    std::vector<std::byte> expected(part.bytes());
    TensorView host =
        TensorView::contiguous(const_cast<std::byte*>(bytes.data()), DType::kUInt8, {20, 48, 64});
    copy(host.narrow(box), TensorView::contiguous(expected.data(), DType::kUInt8, box.sizes));
    EXPECT_EQ(read_all(part, {}), expected) << to_string(box);
    EXPECT_EQ(read_all(part, {.slot_bytes = 4096, .slots = 2}), expected) << to_string(box);
    std::vector<std::byte> rows(part.bytes());
    const auto stream = driver->open_stream(0);
    const RowCopies copies(part, TensorView::contiguous(rows.data(), DType::kUInt8, box.sizes));
    EXPECT_EQ(copies.count(), 1U) << to_string(box);
    copies.for_each([&](const DeviceCopy& one) { stream->begin(CopyWay::kToHost, one); });
    stream->wait(stream->mark());
    EXPECT_EQ(rows, expected) << to_string(box);
  }
}

TEST_P(EveryDriver, AnyStridesAreRead) {
  const auto bytes = random_bytes(60 * 50 * 4);
  const Tensor whole = on_device(DType::kInt32, {60, 50}, bytes);
  const TensorView host =
      TensorView::contiguous(const_cast<std::byte*>(bytes.data()), DType::kInt32, {60, 50});
  const auto expect = [&](const std::function<void(TensorView&)>& change) {
    TensorView there = whole.view(), here = host;
    change(there);
    change(here);
    std::vector<std::byte> expected(here.bytes());
    copy(here, TensorView::contiguous(expected.data(), here.dtype, here.shape));
    EXPECT_EQ(read_all(there, {.slot_bytes = 4096, .slots = 3}), expected);
  };
  expect([](TensorView& v) {
    std::swap(v.shape[0], v.shape[1]);
    std::swap(v.strides[0], v.strides[1]);
  });
  expect([](TensorView& v) {
    v.data += 59 * 50 * 4;
    v.strides[0] = -50;
  });
  expect([](TensorView& v) {
    v.shape = {60, 30, 20};
    v.strides = {50, 1, 1};  // windows
  });
  expect([](TensorView& v) {
    v.shape = {1000, 50};
    v.strides = {0, 1};
  });
  expect([](TensorView& v) {
    v.shape = {20, 25};
    v.strides = {150, 2};
  });
  expect([](TensorView& v) { v = v.narrow({{0, 7}, {60, 1}}); });
  expect([](TensorView& v) { v = v.narrow({{0, 7}, {60, 0}}); });
}

TEST_P(EveryDriver, AnyStridesAreWritten) {
  for (const bool converted : {false, true}) {
    const auto before = random_bytes(40 * 30 * 4);
    const Tensor whole = on_device(DType::kInt32, {40, 30}, before);
    std::vector<std::byte> expected = before;
    DeviceSender sender(driver, 0, driver->open_stream(0), {.slot_bytes = 4096, .slots = 2});
    for (const Box& box : {Box{{3, 4}, {20, 20}}, Box{{30, 0}, {10, 30}}, Box{{0, 1}, {40, 1}}}) {
      Tensor from = Tensor::empty(converted ? DType::kInt64 : DType::kInt32, box.sizes);
      for (std::byte& byte : from.bytes()) byte = static_cast<std::byte>(random_() % 100);
      sender.send_copy(from.view(), whole.view().narrow(box));
      copy(from.view(), TensorView::contiguous(expected.data(), DType::kInt32, {40, 30}).narrow(box));
    }
    sender.wait();
    EXPECT_EQ(from_device(whole.view().data, before.size()), expected);
  }
}

TEST_P(EveryDriver, TensorsFollowEachOther) {
  DeviceReader reader(driver, 0, driver->open_stream(0), {.slot_bytes = 8192, .slots = 3});
  for (const std::size_t size : {1U, 100000U, 8192U, 16384U, 0U, 50000U}) {
    const auto bytes = random_bytes(std::max<std::size_t>(size, 1));
    Tensor tensor = on_device(DType::kUInt8, {static_cast<std::int64_t>(bytes.size())}, bytes);
    const TensorView view = tensor.view().narrow({{0}, {static_cast<std::int64_t>(size)}});
    std::vector<std::byte> all;
    reader.begin(view);
    for (ByteSpan piece = reader.next(); !piece.empty(); piece = reader.next()) {
      EXPECT_TRUE(piece.size() == 8192 || all.size() + piece.size() == size);
      all.insert(all.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(all, std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)));
    reader.begin(view);
    reader.drop();  // not wanted after all
  }
}

TEST_P(EveryDriver, MemoryIsCountedAndGivenBack) {
  constexpr std::uint64_t kSize = 1U << 29;  // what other processes do with a device meanwhile is far less
  const std::uint64_t before = driver->free_memory(0);
  auto memory = driver->allocate(0, kSize);
  EXPECT_LE(driver->free_memory(0), before - kSize / 2);
  memory.reset();
  EXPECT_GE(driver->free_memory(0), before - kSize / 2);
  EXPECT_EQ(error_of([&] { driver->allocate(0, std::uint64_t{1} << 50); }).code(), ErrorCode::kLimit);
}

TEST_P(EveryDriver, ThereIsNoSuchDevice) {
  EXPECT_EQ(error_of([&] { driver->open_stream(1000); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { driver->fence(-1, nullptr); }).code(), ErrorCode::kInvalidArgument);
}

TEST_P(EveryDriver, StreamsOfManyThreadsRunAtOnce) {
  const auto bytes = random_bytes(1 << 20);
  const Tensor tensor = on_device(DType::kUInt8, {1 << 20}, bytes);
  std::atomic<int> good = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round)
        good += read_all(tensor.view(), {.slot_bytes = 64 << 10, .slots = 2}) == bytes ? 1 : 0;
    });
  }
  threads.clear();
  EXPECT_EQ(good, 40);
}

TEST(Simulated, CopiesWaitForTheCallersStream) {
  const auto device = std::make_shared<SimulatedDriver>();
  const Tensor tensor = device->tensor(DType::kUInt8, {1000});
  void* callers[] = {nullptr, device->open_callers_stream()};
  for (int i = 0; i < 2; ++i) {
    const TensorView inside = device->host_view(tensor.view());
    device->launch(
        callers[i], [&] { std::memset(inside.data, i + 1, 1000); }, 20ms);
    const auto stream = device->open_stream(0);
    stream->follow(*device->fence(0, callers[i]));
    std::vector<std::byte> seen(1000);
    stream->begin(CopyWay::kToHost, {.from = tensor.view().data, .to = seen.data(), .row = 1000});
    EXPECT_EQ(seen, std::vector<std::byte>(1000, static_cast<std::byte>(i + 1)));
  }
}

TEST(Simulated, ADestinationIsPoisonUntilTheCopyEnds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a race is what it is about";
#endif
  const auto device = std::make_shared<SimulatedDriver>(SimulatedOptions{.copy_time = 20ms});
  const Tensor tensor = device->tensor(DType::kUInt8, {1000});
  std::memset(device->host_view(tensor.view()).data, 7, 1000);
  PinnedMemory pinned(device, 0, 4096, true);
  const auto stream = device->open_stream(0);
  stream->begin(CopyWay::kToHost, {.from = tensor.view().data, .to = pinned.data(), .row = 1000});
  std::memset(device->host_view(tensor.view()).data, 8, 1000);  // too early: the copy shows it
  stream->wait(stream->mark());
  EXPECT_EQ(pinned.data()[999], std::byte{8});
}

TEST(Simulated, MemoryCannotBeTouchedFromOutside) {
  const auto device = std::make_shared<SimulatedDriver>();
  const Tensor tensor = device->tensor(DType::kUInt8, {1000});
  EXPECT_DEATH(std::memset(tensor.view().data, 1, 1), "");
}

TEST(Simulated, RulesOfCopiesAreKept) {
  const auto device = std::make_shared<SimulatedDriver>();
  const Tensor tensor = device->tensor(DType::kUInt8, {1 << 20});
  PinnedMemory pinned(device, 0, 2 << 20, false);
  ASSERT_TRUE(device->pin(0, pinned.data(), 1 << 20));
  ASSERT_TRUE(device->pin(0, pinned.data() + (1 << 20), 1 << 20));
  const auto stream = device->open_stream(0);
  const auto code = [&](const DeviceCopy& copy) {
    return error_of([&] { stream->begin(CopyWay::kToHost, copy); }).code();
  };
  const std::byte* from = tensor.view().data;
  EXPECT_EQ(code({.from = from, .to = pinned.data() + 100, .row = 1 << 20}), ErrorCode::kInternal);
  EXPECT_EQ(code({.from = from + 1, .to = pinned.data(), .row = 1 << 20}), ErrorCode::kInternal);
  EXPECT_EQ(code({.from = pinned.data(), .to = pinned.data(), .row = 1}), ErrorCode::kInternal);
  EXPECT_EQ(code({.from = from, .to = pinned.data(), .row = 8, .rows = 2, .from_pitch = 7, .to_pitch = 8}),
            ErrorCode::kInternal);
  device->unpin(0, pinned.data());
  device->unpin(0, pinned.data() + (1 << 20));
}

TEST(Simulated, PinningAndAllocationCanBeRefused) {
  const auto device = std::make_shared<SimulatedDriver>();
  device->limit_pinning(1 << 20);
  std::vector<std::byte> memory(3 << 20);
  EXPECT_FALSE(device->pin(0, memory.data(), 2 << 20));
  EXPECT_TRUE(device->pin(0, memory.data(), 1 << 20));
  device->unpin(0, memory.data());
  device->fail_allocations(true);
  EXPECT_EQ(error_of([&] { device->allocate(0, 1); }).code(), ErrorCode::kLimit);
}

TEST(Simulated, AFailedCopyIsToldToWhoWaits) {
  const auto device = std::make_shared<SimulatedDriver>();
  const Tensor tensor = device->tensor(DType::kUInt8, {100});
  PinnedMemory pinned(device, 0, 4096, true);
  const auto stream = device->open_stream(0);
  device->fail_copies_from(2);
  const DeviceCopy copy{.from = tensor.view().data, .to = pinned.data(), .row = 100};
  stream->begin(CopyWay::kToHost, copy);
  stream->wait(stream->mark());
  stream->begin(CopyWay::kToHost, copy);
  EXPECT_EQ(error_of([&] { stream->wait(stream->mark()); }).code(), ErrorCode::kIo);
}

TEST(CudaDriver, SaysWhatIsMissing) {
  try {
    cuda_driver();
    GTEST_SKIP() << "there is a device";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_TRUE(mentions(e, "NVIDIA's driver")) << e.what();
  }
}

}  // namespace
}  // namespace cairn
