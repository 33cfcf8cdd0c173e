// A device made of this process's memory, for tests: what must not happen on a real one shows here.
//
// Its memory cannot be touched through the addresses it gives out: who forgets to copy dies of SIGSEGV. A
// copy takes its time; until it ends, its destination holds poison, and its source is read at the very end.
// Rules of the interface that a copy breaks are errors. Whatever was taken and not given back is counted.
//
//   auto device = std::make_shared<SimulatedDriver>();
//   Tensor t = device->tensor(DType::kFloat32, {4, 4});
//   fill(device->host_view(t.view()));
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "cairn/device.h"
#include "cairn/tensor.h"

namespace cairn {

struct SimulatedOptions {
  int devices = 1;
  std::uint64_t memory = std::uint64_t{1} << 30;  // of each device
  std::chrono::microseconds copy_time{0};         // of each copy
};

// What the device has given out, and what it has done.
struct SimulatedUse {
  std::uint64_t allocated = 0;  // bytes
  std::uint64_t most_allocated = 0;
  std::uint64_t pinned = 0;  // bytes
  std::uint64_t most_pinned = 0;
  int streams = 0;  // open
  int fences = 0;
  std::uint64_t copies = 0;  // begun, ever
};

class SimulatedQueue;

class SimulatedDriver final : public DeviceDriver, public std::enable_shared_from_this<SimulatedDriver> {
 public:
  explicit SimulatedDriver(const SimulatedOptions& options = {});
  ~SimulatedDriver() override;

  std::unique_ptr<DeviceStream> open_stream(int device) override;
  std::unique_ptr<DeviceFence> fence(int device, void* stream) override;
  std::uint64_t free_memory(int device) override;
  std::shared_ptr<std::byte> allocate(int device, std::uint64_t bytes) override;
  bool pin(int device, void* memory, std::uint64_t bytes) override;
  void unpin(int device, void* memory) noexcept override;

  // For tests: a tensor in a device's memory, not initialised, and the same memory where it can be touched.
  Tensor tensor(DType dtype, const Shape& shape, int device = 0);
  TensorView host_view(const TensorView& on_device);

  // Work that the caller gives to a stream of its own (null: the default one) and that takes so long.
  void launch(void* stream, std::function<void()> work, std::chrono::microseconds time);
  void* open_callers_stream();

  void limit_pinning(std::uint64_t bytes);   // pinning beyond is refused
  void fail_allocations(bool fail);          // though free_memory() says there is some
  void fail_copies_from(std::uint64_t nth);  // the nth copy from now on, and all that follow
  void set_copy_time(std::chrono::microseconds time);
  SimulatedUse use() const;

 private:
  friend class SimulatedStream;
  friend class SimulatedFence;
  struct Memory {
    std::uint64_t bytes = 0;
    std::byte* touchable = nullptr;
    int device = 0;
  };
  struct Pinned {
    std::uint64_t bytes = 0;
  };
  // A copy that has begun and not ended.
  struct UnderWay {
    const std::byte* first;
    const std::byte* end;
  };
  std::byte* touchable(const std::byte* on_device, std::uint64_t bytes, int device) const;
  bool is_pinned(const std::byte* host, std::uint64_t bytes) const;  // throws when in part
  void require_idle(const std::byte* first, std::uint64_t bytes, const char* what) const;
  void free_memory_at(std::byte* memory);
  SimulatedQueue& queue_of(void* stream);
  void check_device(int device) const;

  const SimulatedOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<const std::byte*, Memory> memory_;
  std::map<const std::byte*, Pinned> pinned_;
  std::multimap<std::uint64_t, UnderWay> under_way_;  // by copy
  std::vector<std::uint64_t> allocated_;              // by device
  std::vector<std::unique_ptr<SimulatedQueue>> callers_;
  SimulatedUse use_;
  std::chrono::microseconds copy_time_;
  std::uint64_t pin_limit_;
  std::uint64_t fail_from_ = 0;  // 0: never
  bool fail_allocations_ = false;
};

}  // namespace cairn
