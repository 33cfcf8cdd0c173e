#include "cairn/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "background/staging_budget.h"
#include "background/staging_copy.h"
#include "background/staging_sums.h"
#include "base/checked.h"
#include "base/parallel.h"
#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::size_t kMostNames = 100;  // in a message
// Left free on a device: what the driver and the program's next small allocation want.
constexpr std::uint64_t kDeviceReserve = 64U << 20;

int thread_count(int wanted) {
  if (wanted < 0 || wanted > 1024)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} threads; 0 (chosen here) to 1024", wanted));
  if (wanted > 0) return wanted;
  return std::min(core_count(), 16);
}

// Whether a tensor on a device holds the same as its copy, wherever that is.
bool is_same_on_device(const TensorView& live, const TensorView& copy, LazyDriver& driver) {
  const auto reader_of = [&](const TensorView& view) {
    return DeviceReader(driver.get(), view.device.index, driver.get()->open_stream(view.device.index), {});
  };
  DeviceReader live_reader = reader_of(live);
  live_reader.begin(live);
  // In the same pieces: a copy is dense, or has its live tensor's strides.
  std::optional<DeviceReader> copy_reader;
  Tensor dense;
  if (copy.device.is_cpu() && copy.is_contiguous()) {
    dense = Tensor(copy, nullptr);
  } else if (copy.device.is_cpu()) {
    dense = Tensor::empty(copy.dtype, copy.shape);
    cairn::copy(copy, dense.view());
  } else {
    copy_reader.emplace(reader_of(copy));
    copy_reader->begin(copy);
  }
  std::size_t at = 0;
  std::vector<std::byte> rest;  // of the copy's last piece
  for (ByteSpan piece = live_reader.next(); !piece.empty(); piece = live_reader.next()) {
    if (!copy_reader) {
      if (std::memcmp(piece.data(), dense.view().data + at, piece.size()) != 0) return false;
      at += piece.size();
      continue;
    }
    while (rest.size() < piece.size()) {
      const ByteSpan more = copy_reader->next();
      rest.insert(rest.end(), more.begin(), more.end());
    }
    if (std::memcmp(piece.data(), rest.data(), piece.size()) != 0) return false;
    rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(piece.size()));
  }
  return true;
}

bool is_unchanged(const StagingWork& work, std::size_t i, LazyDriver& driver) {
  const StagedTensor& tensor = work.layout.tensors[i];
  const PlaceMemory& memory = work.memory[tensor.place];
  const Tensor copy = work.layout.copy_of(i, memory.data, memory.device, nullptr);
  if (tensor.live.view().device.is_cpu()) return Value(tensor.live) == Value(copy);
  return is_same_on_device(tensor.live.view(), copy.view(), driver);
}

void require_unchanged(const StagingWork& work, LazyDriver& driver) {
  std::string names;
  std::size_t changed = 0;
  for (std::size_t i = 0; i < work.layout.tensors.size(); ++i) {
    if (is_unchanged(work, i, driver)) continue;
    if (++changed <= kMostNames) names += (names.empty() ? "'" : ", '") + work.layout.tensors[i].name + "'";
  }
  if (changed == 0) return;
  throw Error(ErrorCode::kConflict,
              fmt::format("{} tensors changed while they were copied: {}{}; wait until the snapshot is whole "
                          "(SaveHandle::guard) before the state changes",
                          changed, names, changed > kMostNames ? ", ..." : ""))
      .while_doing("comparing the snapshot with the live state");
}

class DefaultStager final : public Stager {
 public:
  explicit DefaultStager(const StagingOptions& options)
      : options_(options),
        threads_(thread_count(options.threads)),
        memory_(std::make_shared<StagingMemory>(options.budget)),
        device_memory_(std::make_shared<DeviceBudget>(options.device_budget)),
        lanes_(std::make_shared<DeviceLanes>(options, threads_)) {}
  DefaultStager(const DefaultStager&) = delete;
  DefaultStager& operator=(const DefaultStager&) = delete;
  ~DefaultStager() override {
    for (const std::shared_future<void>& one : under_way_) one.wait();
  }

  Snapshot stage(const StateDict& state, const StageRequest& request) override {
    Snapshot snapshot;
    snapshot.state = state;
    StagingWork work;
    work.layout = lay_out(snapshot.state);
    take_memory(work, request.deadline);
    for (const StagedPlace& place : work.layout.places) snapshot.bytes += place.bytes;
    const auto sums = options_.checksums ? std::make_shared<StagingSums>(threads_) : nullptr;
    if (sums) snapshot.check = [sums] { sums->require_same(); };
    auto copying = std::make_shared<StagingCopy>(
        std::move(work), [this](StagingWork& begun) { allocate_on_devices(begun); },
        [sums, compare = options_.compare, lanes = lanes_](StagingWork& ended) {
          if (sums) sums->take(ended);
          if (compare) require_unchanged(ended, lanes->driver());
        },
        lanes_);
    remember(copying->whole());  // may throw; nobody has heard of the copy yet
    snapshot.whole = copying->whole();
    snapshot.copied = copying->copied();
    copying->run(threads_, request.overlapped);
    snapshot.copying = std::move(copying);
    if (!request.overlapped) snapshot.whole.get();
    return snapshot;
  }

  void prepare(const StateDict& state) override {
    StateDict copy = state;
    StagingWork work;
    work.layout = lay_out(copy);
    take_memory(work, std::chrono::steady_clock::time_point{});
    const PlaceMemory* on_device = nullptr;
    std::shared_ptr<SnapshotBlock> block;
    std::uint64_t pinned = 0;  // bytes at the block's beginning that devices copy to
    for (std::size_t i = 0; i < work.memory.size(); ++i) {
      if (work.memory[i].block == nullptr) continue;
      block = work.memory[i].block;
      if (work.layout.places[i].device.is_cpu()) continue;
      if (on_device == nullptr) on_device = &work.memory[i];
      pinned = static_cast<std::uint64_t>(work.memory[i].data - block->data()) + work.layout.places[i].bytes;
    }
    if (block == nullptr) return;
    const int device = on_device == nullptr ? 0 : work.layout.places.front().device.index;
    for_each_in_parallel(block->cells(), threads_, [&](std::size_t cell, int) {
      block->populate(cell);
      if (cell * SnapshotBlock::kCell < pinned) pin_cell(*block, cell, device, *lanes_);
    });
  }

  void synchronize() override { synchronize_all(); }

  void close() override {
    synchronize_all();
    memory_->trim();
    lanes_->clear();
  }

 private:
  void synchronize_all() {
    std::vector<std::shared_future<void>> all;
    {
      const std::lock_guard lock(mutex_);
      all = under_way_;
    }
    for (const std::shared_future<void>& one : all) one.wait();
  }

  // Whether a place's copies stay on its device.
  bool stays(const StagedPlace& place) const {
    if (place.device.is_cpu() || options_.place == SnapshotPlace::kHost) return false;
    const std::uint64_t free = lanes_->driver().get()->free_memory(place.device.index);
    const bool is_free = free > kDeviceReserve && place.bytes <= free - kDeviceReserve;
    if (options_.place == SnapshotPlace::kAuto)
      return is_free && options_.device_budget > 0 && place.bytes <= options_.device_budget;
    if (is_free) return true;
    throw Error(
        ErrorCode::kLimit,
        fmt::format("the snapshot needs {} bytes of device {}, and {} are free: let it go to the CPU's "
                    "memory (kAuto), or free some",
                    place.bytes, place.device.index, free))
        .while_doing("staging");
  }

  // One block of the CPU's memory for all places that go there; room in the budget for the others, whose
  // memory is allocated by the thread that copies, because that takes milliseconds.
  void take_memory(StagingWork& work, std::chrono::steady_clock::time_point deadline) {
    std::vector<std::uint64_t> at(work.layout.places.size(), 0);
    std::uint64_t bytes = 0;
    bool any = false;
    work.memory.resize(work.layout.places.size());
    for (std::size_t i = 0; i < work.memory.size(); ++i) {
      const StagedPlace& place = work.layout.places[i];
      PlaceMemory& memory = work.memory[i];
      if (!place.device.is_cpu()) memory.fence = lanes_->driver().fence(place.device.index);
      if (stays(place)) {
        memory.device = place.device;
        memory.owner = take_room(place, deadline);
        if (memory.owner != nullptr) continue;
        memory.device = {};
      }
      at[i] = align_up(bytes, kStagingPage);
      bytes = checked_add(at[i], place.bytes);
      any = true;
    }
    if (!any) return;
    const std::shared_ptr<SnapshotBlock> block = memory_->take(bytes, deadline);
    for (std::size_t i = 0; i < work.memory.size(); ++i)
      if (work.memory[i].device.is_cpu()) put(work, i, block, at[i]);
  }

  // Null when there is none and the CPU's memory will do.
  std::shared_ptr<void> take_room(const StagedPlace& place, std::chrono::steady_clock::time_point deadline) {
    const bool must = options_.place == SnapshotPlace::kDevice;
    try {
      return device_memory_->take(place.device.index, place.bytes,
                                  must ? deadline : std::chrono::steady_clock::time_point{});
    } catch (const Error&) {
      if (must) throw;
      return nullptr;
    }
  }

  static void put(StagingWork& work, std::size_t place, const std::shared_ptr<SnapshotBlock>& block,
                  std::uint64_t at) {
    PlaceMemory& memory = work.memory[place];
    memory.block = block;
    memory.owner = block;
    memory.data = block->data() + at;
    memory.device = {};
    work.layout.put(place, memory.data, memory.device, memory.owner);
  }

  void allocate_on_devices(StagingWork& work) {
    for (std::size_t i = 0; i < work.memory.size(); ++i) {
      PlaceMemory& memory = work.memory[i];
      if (memory.device.is_cpu()) continue;
      const StagedPlace& place = work.layout.places[i];
      try {
        const auto allocated = lanes_->driver().get()->allocate(place.device.index, place.bytes);
        // The memory first, then the room for it.
        memory.owner = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<std::byte>>>(
            memory.owner, allocated);
        memory.data = allocated.get();
        work.layout.put(i, memory.data, memory.device, memory.owner);
      } catch (const Error&) {
        // Somebody was faster. What has to be on the device fails; the rest finds room elsewhere, or not.
        if (options_.place == SnapshotPlace::kDevice) throw;
        put(work, i, memory_->take(place.bytes, {}), 0);
      }
    }
  }

  void remember(const std::shared_future<void>& whole) {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [](const std::shared_future<void>& one) {
      return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    under_way_.push_back(whole);
  }

  const StagingOptions options_;
  const int threads_;
  const std::shared_ptr<StagingMemory> memory_;
  const std::shared_ptr<DeviceBudget> device_memory_;
  const std::shared_ptr<DeviceLanes> lanes_;
  std::mutex mutex_;  // guards under_way_
  std::vector<std::shared_future<void>> under_way_;
};

}  // namespace

std::unique_ptr<Stager> default_stager(const StagingOptions& options) {
  return std::make_unique<DefaultStager>(options);
}

}  // namespace cairn
