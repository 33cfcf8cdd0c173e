#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "background/staging_memory.h"
#include "cairn/staging.h"
#include "testing/async.h"
#include "testing/errors.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A part of a tensor, over the same memory.
Tensor view_of(const Tensor& whole, const Box& box) { return {whole.view().narrow(box), whole.owner()}; }

Tensor transposed(const Tensor& tensor) {
  TensorView view = tensor.view();
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return {view, tensor.owner()};
}

const Tensor& tensor_in(const StateDict& state, const char* name) { return state.find(name)->get<Tensor>(); }

void overwrite(const Tensor& tensor) { std::memset(tensor.view().data, 0x5a, tensor.view().bytes()); }

// Stages one tensor and expects its copy to be equal, and to stay so when `storage` changes.
Tensor expect_staged(const Tensor& tensor, const Tensor& storage, std::uint64_t most_bytes = UINT64_MAX) {
  const Tensor before = clone(tensor);
  StateDict state;
  state.set("t", Value(tensor));
  const Snapshot snapshot = default_stager({.threads = 3})->stage(state, {});
  overwrite(storage);
  EXPECT_EQ(*snapshot.state.find("t"), Value(before));
  EXPECT_LE(snapshot.bytes, most_bytes);
  return tensor_in(snapshot.state, "t");
}

TEST(Staging, CopiesTensorsAndPlainValues) {
  StateDict state = trainer_state(0, 1, 7);
  state.set("nested",
            Value(List{Value(Tuple{{Value(numbered({3}, 4)), Value("x")}}), Value(Dict{{"k", Value(1)}})}));
  const StateDict expected = trainer_state(0, 1, 7);
  const auto stager = default_stager();
  const Snapshot snapshot = stager->stage(state, {});
  const Tensor& live = state.find("nested")->get<List>()[0].get<Tuple>().items[0].get<Tensor>();
  overwrite(live);
  overwrite(state.find("model")->get<Dict>().find("b")->get<Tensor>());
  overwrite(state.find("model")->get<Dict>().find("scalar")->get<Tensor>());
  overwrite(state.find("model")->get<Dict>().find("w")->get<ShardedTensor>().shards[0].data);
  for (const char* name : {"model", "optim", "step", "notes"})
    EXPECT_EQ(*snapshot.state.find(name), *expected.find(name)) << name;
  EXPECT_EQ(snapshot.state.find("nested")->get<List>()[0],
            Value(Tuple{{Value(numbered({3}, 4)), Value("x")}}));
}

TEST(Staging, CopiesViewsOfAnyStrides) {
  const auto fresh = [] { return numbered({64, 48}, 3); };
  Tensor whole = fresh();
  expect_staged(transposed(whole), whole);
  whole = fresh();
  expect_staged(view_of(whole, {{3, 5}, {40, 7}}), whole, 40 * 7 * 4 + 64);  // columns: gathered
  whole = fresh();
  expect_staged(view_of(whole, {{8, 0}, {4, 48}}), whole, 4 * 48 * 4 + 64);  // rows
  whole = fresh();
  TensorView backwards = whole.view();
  backwards.data += 63 * 48 * 4;
  backwards.strides[0] = -48;
  expect_staged(Tensor(backwards, whole.owner()), whole, whole.view().bytes() + 64);
  whole = fresh();
  TensorView broadcast = whole.view().narrow({{2, 0}, {1, 48}});
  broadcast.shape[0] = 1000;
  broadcast.strides[0] = 0;
  expect_staged(Tensor(broadcast, whole.owner()), whole, 48 * 4 + 64);
  whole = fresh();
  TensorView windows = whole.view();  // each row is the one before, moved on by one
  windows.strides[0] = 1;
  expect_staged(Tensor(windows, whole.owner()), whole, (63 + 48) * 4 + 64);
}

TEST(Staging, CutsLargeTensorsOverThreads) {
  Tensor whole = numbered({6000, 1000}, 9);
  const Tensor staged = expect_staged(whole, whole);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(staged.view().data) % 4096, 0U);
  whole = numbered({6000, 1000}, 9);
  expect_staged(view_of(whole, {{0, 1}, {6000, 998}}), whole);
}

TEST(Staging, ViewsThatLieInOneAnotherShareMemory) {
  const Tensor whole = numbered({512, 512}, 1);
  StateDict state;
  state.set("column", Value(view_of(whole, {{0, 7}, {512, 1}})));
  state.set("whole", Value(whole));
  state.set("rows", Value(view_of(whole, {{5, 0}, {20, 512}})));
  state.set("tied", Value(whole));
  const Snapshot snapshot = default_stager()->stage(state, {});
  EXPECT_EQ(snapshot.state, state);
  EXPECT_LT(snapshot.bytes, whole.view().bytes() + 4096);
  const std::byte* base = tensor_in(snapshot.state, "whole").view().data;
  EXPECT_EQ(tensor_in(snapshot.state, "tied").view().data, base);
  EXPECT_EQ(tensor_in(snapshot.state, "rows").view().data - base, 5 * 512 * 4);
  EXPECT_EQ(tensor_in(snapshot.state, "column").view().data - base, 7 * 4);
}

TEST(Staging, RowsThatOverlapAreStagedOnce) {
  const Tensor whole = numbered({300, 256}, 1);
  StateDict state;
  state.set("a", Value(view_of(whole, {{0, 0}, {200, 256}})));
  state.set("b", Value(view_of(whole, {{100, 0}, {200, 256}})));
  const Snapshot snapshot = default_stager()->stage(state, {});
  EXPECT_EQ(snapshot.state, state);
  EXPECT_LT(snapshot.bytes, whole.view().bytes() + 4096);
}

TEST(Staging, EqualScatteredViewsAreGatheredOnce) {
  const Tensor whole = numbered({4096, 64}, 1);
  StateDict state;
  for (const char* name : {"a", "b", "c"}) state.set(name, Value(view_of(whole, {{0, 0}, {4096, 5}})));
  const Snapshot snapshot = default_stager()->stage(state, {});
  EXPECT_EQ(snapshot.state, state);
  EXPECT_LT(snapshot.bytes, 4096U * 5 * 4 + 4096);
  EXPECT_EQ(tensor_in(snapshot.state, "a").view().data, tensor_in(snapshot.state, "c").view().data);
}

TEST(Staging, ElementsStayAligned) {
  const Tensor bytes = Tensor::zeros(DType::kUInt8, {4096});
  StateDict state;
  state.set("odd", Value(view_of(bytes, {{1}, {100}})));
  TensorView words = TensorView::contiguous(bytes.view().data + 64, DType::kFloat64, {32});
  state.set("words", Value(Tensor(words, bytes.owner())));
  const Snapshot snapshot = default_stager()->stage(state, {});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor_in(snapshot.state, "words").view().data) % 8, 0U);
}

TEST(Staging, MemoryIsUsedAgainWhenTheSnapshotIsGone) {
  StateDict state;
  state.set("t", Value(numbered({1 << 20}, 1)));
  const auto stager = default_stager();
  const std::byte* first = tensor_in(stager->stage(state, {}).state, "t").view().data;
  EXPECT_EQ(tensor_in(stager->stage(state, {}).state, "t").view().data, first);
}

TEST(Staging, MemoryIsNotUsedAgainWhileATensorOfItLives) {
  StateDict state;
  state.set("t", Value(numbered({1 << 20}, 1)));
  auto stager = default_stager();
  const Tensor kept = tensor_in(stager->stage(state, {}).state, "t");
  overwrite(tensor_in(state, "t"));
  const Snapshot second = stager->stage(state, {});
  EXPECT_NE(tensor_in(second.state, "t").view().data, kept.view().data);
  stager->close();
  stager.reset();
  EXPECT_EQ(Value(kept), Value(numbered({1 << 20}, 1)));
}

TEST(Staging, OverlappedCopiesEndWithTheirFuture) {
  StateDict state;
  state.set("t", Value(numbered({6 << 20}, 1)));
  const auto stager = default_stager({.threads = 2});
  const Snapshot snapshot = stager->stage(state, {.overlapped = true});
  snapshot.whole.get();
  EXPECT_EQ(snapshot.copied->load(), 24 * kMiB);
  overwrite(tensor_in(state, "t"));
  EXPECT_EQ(*snapshot.state.find("t"), Value(numbered({6 << 20}, 1)));
}

TEST(Staging, SynchronizeWaitsForEveryCopy) {
  StateDict state;
  state.set("t", Value(numbered({6 << 20}, 1)));
  const auto stager = default_stager({.threads = 2});
  const Snapshot first = stager->stage(state, {.overlapped = true});
  const Snapshot second = stager->stage(state, {.overlapped = true});
  stager->synchronize();
  EXPECT_EQ(first.whole.wait_for(0s), std::future_status::ready);
  EXPECT_EQ(second.whole.wait_for(0s), std::future_status::ready);
}

TEST(Staging, ADroppedSnapshotWaitsForItsCopy) {
  const auto stager = default_stager({.threads = 2});
  for (int i = 0; i < 10; ++i) {
    StateDict state;
    state.set("t", Value(Tensor::zeros(DType::kUInt8, {16 << 20})));
    (void)stager->stage(state, {.overlapped = true});
  }
}

TEST(Staging, AStateLargerThanTheBudgetIsAnError) {
  StateDict state;
  state.set("t", Value(Tensor::zeros(DType::kUInt8, {4 << 20})));
  const auto stager = default_stager({.budget = 3 * kMiB});
  const Error e = error_of([&] { stager->stage(state, {}); });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
  EXPECT_TRUE(mentions(e, "needs 4194304 bytes")) << e.what();
}

TEST(Staging, WaitsForTheMemoryOfOlderSnapshots) {
  StateDict state;
  state.set("t", Value(Tensor::zeros(DType::kUInt8, {2 << 20})));
  const auto stager = default_stager({.budget = 3 * kMiB});
  auto held = std::make_unique<Snapshot>(stager->stage(state, {}));
  EXPECT_EQ(error_of([&] { stager->stage(state, {.deadline = Clock::time_point()}); }).code(),
            ErrorCode::kLimit);
  EXPECT_EQ(error_of([&] { stager->stage(state, {.deadline = Clock::now() + 10ms}); }).code(),
            ErrorCode::kTimeout);
  std::atomic<bool> freed = false;
  std::thread other([&] {
    std::this_thread::sleep_for(20ms);
    freed = true;
    held.reset();
  });
  (void)stager->stage(state, {});
  EXPECT_TRUE(freed);
  other.join();
}

TEST(Staging, KeptMemoryCountsAndMakesWay) {
  const auto memory = std::make_shared<StagingMemory>(10 * kMiB);
  const Clock::time_point never{};
  memory->take(6 * kMiB, never).reset();
  EXPECT_EQ(memory->kept(), 6 * kMiB);
  const auto small = memory->take(2 * kMiB, never);  // not worth the large block
  EXPECT_EQ(memory->held() + memory->kept(), 8 * kMiB);
  const auto large = memory->take(8 * kMiB, never);
  EXPECT_EQ(memory->held(), 10 * kMiB);
  EXPECT_EQ(memory->kept(), 0U);
}

TEST(Staging, AGrowingStateLeavesNoOldBlocks) {
  const auto memory = std::make_shared<StagingMemory>(0);
  for (std::uint64_t i = 1; i < 20; ++i) memory->take(kMiB + i * 64 * 1024, Clock::time_point()).reset();
  EXPECT_EQ(memory->kept(), kMiB + 19 * 64 * 1024);
}

TEST(Staging, TensorsOnADeviceNeedItsDriver) {
  try {
    cuda_driver();
    GTEST_SKIP() << "there is a device";
  } catch (const Error&) {
  }
  TensorView view = numbered({4}, 1).view();
  view.device = {Device::Kind::kCuda, 1};
  StateDict state;
  state.set("model", Dict{{"w", Value(Tensor(view, nullptr))}});
  const Error e = error_of([&] { default_stager()->stage(state, {}); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(e, "NVIDIA's driver")) << e.what();
}

TEST(Staging, PreparedMemoryIsUsed) {
  StateDict state;
  state.set("t", Value(numbered({1 << 20}, 1)));
  const auto stager = default_stager({.budget = 5 * kMiB, .threads = 3});
  stager->prepare(state);
  const Snapshot snapshot = stager->stage(state, {.deadline = Clock::time_point()});
  EXPECT_EQ(*snapshot.state.find("t"), Value(numbered({1 << 20}, 1)));
}

TEST(Staging, ATensorWithoutMemoryIsNamed) {
  TensorView view = numbered({4}, 1).view();
  view.data = nullptr;
  StateDict state;
  state.set("bad", Value(List{Value(Tensor(view, nullptr))}));
  const Error e = error_of([&] { default_stager()->stage(state, {}); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "bad.0");
}

// Memory that changes without an instruction of this process that touches it.
class FileMemory {
 public:
  explicit FileMemory(std::size_t bytes) : bytes_(bytes), file_(::memfd_create("cairn-test", 0)) {
    if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) ADD_FAILURE() << "no memory for the test";
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;
  ~FileMemory() {
    ::munmap(data_, bytes_);
    ::close(file_);
  }
  Tensor tensor() const {
    return {TensorView::contiguous(data_, DType::kUInt8, {static_cast<std::int64_t>(bytes_)}), nullptr};
  }
  void change(std::uint64_t number) const {
    EXPECT_EQ(::pwrite(file_, &number, sizeof number, static_cast<off_t>(bytes_ / 2)), 8);
  }

 private:
  std::size_t bytes_;
  int file_;
  void* data_ = nullptr;
};

TEST(Staging, ComparisonNamesWhatChangedDuringTheCopy) {
  const FileMemory memory(16 << 20);
  StateDict state;
  state.set("still", Value(numbered({100}, 1)));
  state.set("moving", Value(memory.tensor()));
  const auto stager = default_stager({.threads = 1, .compare = true});
  EXPECT_NO_THROW(stager->stage(state, {}));
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (std::uint64_t i = 0; !stop; ++i) memory.change(i);
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
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(*seen, "'moving'"));
  EXPECT_FALSE(mentions(*seen, "'still'"));
}

}  // namespace
}  // namespace cairn
