// What tests of background saves share: places that can be slow or fail, and states that change.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/async.h"
#include "testing/faulty.h"
#include "testing/simulated.h"
#include "testing/states.h"

namespace cairn {

// One checkpoint's place, in memory.
struct SlowPlace {
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::shared_ptr<FileSystem> files = faulty_file_system(memory_file_system(), faults);
  std::unique_ptr<StorageWriter> writer = dcp_writer(files, {.files_per_rank = 1});
  // A MiB takes a second: time enough for a test to cancel.
  std::unique_ptr<StorageWriter> paced =
      dcp_writer(files, {.files_per_rank = 1, .bytes_per_second = 1U << 20});

  SaveOptions save() const {
    SaveOptions options;
    options.writer = writer.get();
    return options;
  }
  SaveOptions save_with(SavePlanner& planner) const {
    SaveOptions options = save();
    options.planner = &planner;
    return options;
  }
  SaveOptions save_paced() const {
    SaveOptions options;
    options.writer = paced.get();
    return options;
  }
  // Every call of this kind is late from now on.
  void delay(FileCall call, std::chrono::microseconds time) const {
    faults->fail({.call = call, .for_ever = true, .delay = time, .only_delay = true});
  }
  void fail(FileCall call, int os_error) const {
    faults->fail({.call = call, .for_ever = true, .os_error = os_error});
  }
  StateDict load() const {
    const auto reader = dcp_reader(files, {.verify = Verify::kFull});
    return load_into_new("memory", std::nullopt, {.reader = reader.get()});
  }
};

// Holds a save up after its second item until the test says go, so that nothing depends on who is faster.
class GatedPlanner : public DefaultSavePlanner {
 public:
  Value resolve_data(const WriteItem& item) override {
    {
      std::unique_lock lock(mutex_);
      if (++asked_ > 2) changed_.wait_for(lock, std::chrono::seconds(60), [&] { return open_; });
    }
    return DefaultSavePlanner::resolve_data(item);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Opens in a while, from a thread of its own: for a call that must wait until then.
  std::jthread open_later() {
    return std::jthread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      open();
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;
  bool open_ = false;
};

inline Tensor clone(const Tensor& tensor) {
  const Tensor made = Tensor::empty(tensor.view().dtype, tensor.view().shape);
  if (tensor.view().numel() > 0) copy(tensor.view(), made.view());
  return made;
}

// `mib` tensors of a MiB each, every one a write of its own.
inline StateDict large_state(int mib, int version) {
  StateDict state;
  for (int i = 0; i < mib; ++i) state.set("t" + std::to_string(i), Value(numbered({1 << 18}, version + i)));
  state.set("version", Value(version));
  return state;
}

// A state whose tensors are views of two storages, scalars and shards; all of it changes at random. With a
// device, most of it is in its memory.
class ChangingState {
 public:
  explicit ChangingState(unsigned seed, std::shared_ptr<SimulatedDriver> device = nullptr)
      : random_(seed), device_(std::move(device)) {
    change();
  }

  // What the state holds, in memory of its own: flat names, whole tensors.
  std::vector<std::pair<std::string, Value>> content() const {
    std::vector<std::pair<std::string, Value>> content;
    for (const auto& [key, value] : state_) {
      if (const auto* tensor = value.get_if<Tensor>()) {
        content.emplace_back(to_string(key), Value(clone(touchable(*tensor))));
      } else if (const auto* sharded = value.get_if<ShardedTensor>()) {
        content.emplace_back(to_string(key), Value(clone(touchable(sharded->shards[0].data))));
      } else {
        content.emplace_back(to_string(key), value);
      }
    }
    return content;
  }

  // Random bytes in every tensor, another step. Now and then other memory and another shape.
  void change() {
    if (step_ % 50 == 0) make_tensors();
    for (const Tensor& storage : storages_) {
      Tensor bytes = touchable(storage);
      for (std::byte& byte : bytes.bytes()) byte = static_cast<std::byte>(random_());
    }
    state_.set("step", Value(++step_));
  }

  const StateDict& state() const { return state_; }

 private:
  Tensor touchable(const Tensor& tensor) const {
    if (tensor.view().device.is_cpu()) return tensor;
    return {device_->host_view(tensor.view()), tensor.owner()};
  }
  Tensor make(DType dtype, const Shape& shape) const {
    return device_ == nullptr ? Tensor::empty(dtype, shape) : device_->tensor(dtype, shape);
  }

  void make_tensors() {
    const std::int64_t rows = 16 + step_ % 3;
    const Tensor w = make(DType::kInt32, {rows, 24});
    const Tensor scalar = make(DType::kInt64, {});
    const Tensor shard = make(DType::kUInt8, {40});
    const Tensor in_cpu = Tensor::empty(DType::kFloat32, {7, 3});
    storages_ = {w, scalar, shard, in_cpu};
    const auto part = [&](const Box& box) { return Value(Tensor(w.view().narrow(box), w.owner())); };
    state_.set("w", Value(w));
    state_.set("tied", Value(w));
    state_.set("rows", part({{4, 0}, {8, 24}}));
    state_.set("columns", part({{0, 3}, {rows, 5}}));
    state_.set("scalar", Value(scalar));
    state_.set("sharded", Value(ShardedTensor{DType::kUInt8, {40}, {{{{0}, {40}}, shard}}}));
    state_.set("empty", Value(make(DType::kFloat32, {0, 3})));
    state_.set("in_cpu", Value(in_cpu));
  }

  std::mt19937 random_;
  std::shared_ptr<SimulatedDriver> device_;
  std::vector<Tensor> storages_;
  StateDict state_;
  int step_ = 0;
};

inline void expect_content(const StateDict& loaded,
                           const std::vector<std::pair<std::string, Value>>& content) {
  ASSERT_EQ(loaded.size(), content.size());
  for (const auto& [name, value] : content) {
    const Value* found = loaded.find(name);
    ASSERT_NE(found, nullptr) << name;
    ASSERT_EQ(*found, value) << name;
  }
}

}  // namespace cairn
