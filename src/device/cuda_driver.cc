// CUDA devices through the driver's own interface: primary contexts, which the runtime and PyTorch use too.
#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "cairn/device.h"
#include "cairn/error.h"
#include "device/cuda_api.h"

namespace cairn {
namespace {

using cuda::Api;
using cuda::check;

cuda::DevicePtr address_of(const void* pointer) { return reinterpret_cast<cuda::DevicePtr>(pointer); }

// Makes a context current for a while. The caller's own one is back afterwards.
class Current {
 public:
  Current(const Api& api, cuda::Context context) : api_(api) {
    check(api, api.context_push(context), "entering a device's context");
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    cuda::Context popped = nullptr;
    (void)api_.context_pop(&popped);
  }

 private:
  const Api& api_;
};

class CudaDriver;

// What streams, fences and memory share: a device's context, and the driver that keeps it.
struct Home {
  std::shared_ptr<CudaDriver> driver;
  const Api* api = nullptr;
  cuda::Context context = nullptr;

  Current enter() const { return {*api, context}; }
};

class CudaEvent {
 public:
  explicit CudaEvent(const Api& api) : api_(&api) {
    check(api, api.event_create(&event_, cuda::kEventBlockingSync | cuda::kEventDisableTiming),
          "creating an event");
  }
  CudaEvent(CudaEvent&& other) noexcept : api_(other.api_), event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent() { reset(); }
  void reset() {
    if (event_ != nullptr) (void)api_->event_destroy(event_);
    event_ = nullptr;
  }
  cuda::Event get() const { return event_; }

 private:
  const Api* api_;
  cuda::Event event_ = nullptr;
};

class CudaFence final : public DeviceFence {
 public:
  CudaFence(Home home, cuda::Stream stream) : home_(std::move(home)), event_(*home_.api) {
    check(*home_.api, home_.api->event_record(event_.get(), stream), "recording an event");
  }
  ~CudaFence() override {
    try {
      const Current current = home_.enter();
      event_.reset();
    } catch (const Error&) {
      // The context is gone, and the event with it.
    }
  }
  cuda::Event event() const { return event_.get(); }

 private:
  Home home_;
  CudaEvent event_;
};

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(Home home) : home_(std::move(home)) {
    const Current current = home_.enter();
    check(api(), api().stream_create(&stream_, cuda::kStreamNonBlocking), "creating a stream");
  }

  ~CudaStream() override {
    // A process that ends may have taken the context down already: then there is nothing to wait for.
    try {
      const Current current = home_.enter();
      (void)api().stream_synchronize(stream_);
      (void)api().stream_destroy(stream_);
      marked_.clear();
      spare_.clear();
    } catch (const Error&) {
    }
  }

  void follow(const DeviceFence& fence) override {
    const Current current = home_.enter();
    const auto& event = dynamic_cast<const CudaFence&>(fence);
    check(api(), api().stream_wait_event(stream_, event.event(), 0), "waiting for the caller's stream");
  }

  void begin(CopyWay way, const DeviceCopy& copy) override {
    const Current current = home_.enter();
    check(api(), copy.rows * copy.planes == 1 ? begin_row(way, copy) : begin_rows(way, copy),
          "copying to or from a device");
  }

  std::uint64_t mark() override {
    const Current current = home_.enter();
    if (spare_.empty()) spare_.emplace_back(api());
    CudaEvent event = std::move(spare_.back());
    spare_.pop_back();
    check(api(), api().event_record(event.get(), stream_), "recording an event");
    marked_.push_back({++last_mark_, std::move(event)});
    return last_mark_;
  }

  void wait(std::uint64_t mark) override {
    const Current current = home_.enter();
    while (!marked_.empty() && marked_.front().mark <= mark) {
      // Those before it have ended when it has; they need no call of their own.
      Marked& one = marked_.front();
      if (one.mark == mark || marked_.size() == 1 || marked_[1].mark > mark)
        check(api(), api().event_synchronize(one.event.get()), "copying to or from a device");
      spare_.push_back(std::move(one.event));
      marked_.pop_front();
    }
  }

 private:
  struct Marked {
    std::uint64_t mark;
    CudaEvent event;
  };
  const Api& api() const { return *home_.api; }

  cuda::Result begin_row(CopyWay way, const DeviceCopy& copy) {
    switch (way) {
      case CopyWay::kToHost: return api().copy_to_host(copy.to, address_of(copy.from), copy.row, stream_);
      case CopyWay::kToDevice: return api().copy_to_device(address_of(copy.to), copy.from, copy.row, stream_);
      case CopyWay::kOnDevice:
        return api().copy_on_device(address_of(copy.to), address_of(copy.from), copy.row, stream_);
    }
    return cuda::kSuccess;
  }

  cuda::Result begin_rows(CopyWay way, const DeviceCopy& copy) {
    cuda::Copy3D rows;
    rows.from = side(way == CopyWay::kToDevice, copy.from, copy.from_pitch, copy.from_plane, copy);
    rows.to = side(way == CopyWay::kToHost, copy.to, copy.to_pitch, copy.to_plane, copy);
    rows.width = copy.row;
    rows.height = copy.rows;
    rows.depth = copy.planes;
    return api().copy_3d(&rows, stream_);
  }

  static cuda::CopySide side(bool host, const void* memory, std::uint64_t pitch, std::uint64_t plane,
                             const DeviceCopy& copy) {
    cuda::CopySide side;
    side.memory_type = host ? cuda::kMemoryHost : cuda::kMemoryDevice;
    if (host) {
      side.host = memory;
    } else {
      side.device = address_of(memory);
    }
    side.pitch = copy.rows > 1 ? pitch : copy.row;
    side.height = copy.planes > 1 ? plane / side.pitch : copy.rows;
    return side;
  }

  Home home_;
  cuda::Stream stream_ = nullptr;
  std::uint64_t last_mark_ = 0;
  std::deque<Marked> marked_;     // ascending
  std::vector<CudaEvent> spare_;  // to be used again
};

class CudaDriver final : public DeviceDriver, public std::enable_shared_from_this<CudaDriver> {
 public:
  CudaDriver() : api_(cuda::load_api()) {
    int count = 0;
    check(api_, api_.device_count(&count), "counting the devices");
    if (count == 0) throw Error(ErrorCode::kUnsupported, "NVIDIA's driver finds no device");
    contexts_.resize(static_cast<std::size_t>(count), nullptr);
  }
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  ~CudaDriver() override {
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      int device = 0;
      if (contexts_[i] != nullptr && api_.device_get(&device, static_cast<int>(i)) == cuda::kSuccess)
        (void)api_.context_release(device);
    }
  }

  std::unique_ptr<DeviceStream> open_stream(int device) override {
    return std::make_unique<CudaStream>(home(device));
  }

  std::unique_ptr<DeviceFence> fence(int device, void* stream) override {
    const Home at = home(device);
    const Current current = at.enter();
    cuda::Context owner = nullptr;
    if (stream != nullptr) check(api_, api_.stream_context(stream, &owner), "looking at the caller's stream");
    return std::make_unique<CudaFence>(at, owner == at.context ? stream : nullptr);
  }

  std::uint64_t free_memory(int device) override {
    const Current current = home(device).enter();
    std::size_t free = 0, total = 0;
    check(api_, api_.memory_info(&free, &total), "asking for a device's free memory");
    return free;
  }

  std::shared_ptr<std::byte> allocate(int device, std::uint64_t bytes) override {
    const Home at = home(device);
    const Current current = at.enter();
    cuda::DevicePtr memory = 0;
    check(api_, api_.memory_allocate(&memory, bytes), "allocating a device's memory");
    const auto release = [at](std::byte* pointer) {
      try {
        const Current inside = at.enter();
        (void)at.api->memory_free(address_of(pointer));
      } catch (const Error&) {
        // The context is gone, and its memory with it.
      }
    };
    return {reinterpret_cast<std::byte*>(memory), release};
  }

  bool pin(int device, void* memory, std::uint64_t bytes) override {
    const Current current = home(device).enter();
    return api_.host_register(memory, bytes, cuda::kHostRegisterPortable) == cuda::kSuccess;
  }

  void unpin(int device, void* memory) noexcept override {
    try {
      const Current current = home(device).enter();
      (void)api_.host_unregister(memory);
    } catch (const Error&) {
      // As above.
    }
  }

 private:
  Home home(int device) {
    const std::lock_guard lock(mutex_);
    if (device < 0 || static_cast<std::size_t>(device) >= contexts_.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("there is no CUDA device {}; there are {}", device, contexts_.size()));
    }
    cuda::Context& context = contexts_[static_cast<std::size_t>(device)];
    if (context == nullptr) {
      int handle = 0;
      check(api_, api_.device_get(&handle, device), "finding a device");
      check(api_, api_.context_retain(&context, handle), "opening a device");
    }
    return {shared_from_this(), &api_, context};
  }

  const Api api_;
  std::mutex mutex_;
  std::vector<cuda::Context> contexts_;  // by device; null: not used yet
};

}  // namespace

std::shared_ptr<DeviceDriver> cuda_driver() { return std::make_shared<CudaDriver>(); }

}  // namespace cairn
