#include "testing/simulated.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "cairn/error.h"
#include "testing/simulated_queue.h"

namespace cairn {
namespace {

constexpr int kPoison = 0xdb;
constexpr std::uint64_t kPage = 4096;

[[noreturn]] void misuse(const std::string& what) { throw Error(ErrorCode::kInternal, what); }

std::uint64_t extent(const DeviceCopy& copy, std::uint64_t pitch, std::uint64_t plane) {
  return (copy.planes - 1) * plane + (copy.rows - 1) * pitch + copy.row;
}

void check_rows(const DeviceCopy& copy) {
  if (copy.row == 0 || copy.rows == 0 || copy.planes == 0) misuse("a copy without bytes");
  const auto pitches_are_good = [&](std::uint64_t pitch, std::uint64_t plane) {
    if (copy.rows > 1 && (pitch < copy.row || pitch > kMostPitch)) return false;
    const std::uint64_t step = copy.rows > 1 ? pitch : copy.row;
    return copy.planes == 1 || (plane % step == 0 && plane / step >= copy.rows);
  };
  if (!pitches_are_good(copy.from_pitch, copy.from_plane) || !pitches_are_good(copy.to_pitch, copy.to_plane))
    misuse("a copy whose pitches a device does not take");
}

template <class F> void for_each_row(const DeviceCopy& copy, const F& each) {
  for (std::uint64_t plane = 0; plane < copy.planes; ++plane)
    for (std::uint64_t row = 0; row < copy.rows; ++row)
      each(copy.from + plane * copy.from_plane + row * copy.from_pitch,
           copy.to + plane * copy.to_plane + row * copy.to_pitch);
}

}  // namespace

class SimulatedFence final : public DeviceFence {
 public:
  SimulatedFence(std::shared_ptr<SimulatedDriver> driver, SimulatedQueue& queue)
      : driver_(std::move(driver)), queue_(queue), given_(queue.given()) {
    const std::lock_guard lock(driver_->mutex_);
    ++driver_->use_.fences;
  }
  ~SimulatedFence() override {
    const std::lock_guard lock(driver_->mutex_);
    --driver_->use_.fences;
  }
  std::function<void()> passed() const {
    return [queue = &queue_, given = given_] { queue->wait(given); };
  }

 private:
  std::shared_ptr<SimulatedDriver> driver_;
  SimulatedQueue& queue_;
  std::uint64_t given_;
};

class SimulatedStream final : public DeviceStream {
 public:
  SimulatedStream(std::shared_ptr<SimulatedDriver> driver, int device)
      : driver_(std::move(driver)), device_(device) {
    const std::lock_guard lock(driver_->mutex_);
    ++driver_->use_.streams;
  }
  ~SimulatedStream() override {
    {
      const std::lock_guard lock(driver_->mutex_);
      --driver_->use_.streams;
    }
    try {
      queue_.wait(queue_.given());
    } catch (...) {
      // Told to who waited, or to nobody.
    }
  }

  void follow(const DeviceFence& fence) override {
    queue_.add(dynamic_cast<const SimulatedFence&>(fence).passed(), {});
  }

  void begin(CopyWay way, const DeviceCopy& copy) override {
    check_rows(copy);
    const std::uint64_t from_bytes = extent(copy, copy.from_pitch, copy.from_plane);
    const std::uint64_t to_bytes = extent(copy, copy.to_pitch, copy.to_plane);
    DeviceCopy real = copy;
    bool at_once = false;
    bool fails = false;
    std::uint64_t number = 0;
    std::chrono::microseconds time;
    {
      const std::lock_guard lock(driver_->mutex_);
      if (way == CopyWay::kToDevice) {
        at_once = !driver_->is_pinned(copy.from, from_bytes);
      } else {
        real.from = driver_->touchable(copy.from, from_bytes, device_);
      }
      if (way == CopyWay::kToHost) {
        at_once = !driver_->is_pinned(copy.to, to_bytes);
      } else {
        real.to = driver_->touchable(copy.to, to_bytes, device_);
      }
      number = ++driver_->use_.copies;
      fails = driver_->fail_from_ > 0 && number >= driver_->fail_from_;
      driver_->under_way_.emplace(number, SimulatedDriver::UnderWay{copy.from, copy.from + from_bytes});
      driver_->under_way_.emplace(number, SimulatedDriver::UnderWay{copy.to, copy.to + to_bytes});
      time = driver_->copy_time_;
    }
    // In its turn: what the caller or an earlier copy still does there comes before.
    queue_.add(
        [real] {
          for_each_row(real, [&](const std::byte*, std::byte* to) { std::memset(to, kPoison, real.row); });
        },
        {});
    queue_.add([this, real, number, fails] { end(real, number, fails); }, time);
    if (at_once) queue_.wait(queue_.given());  // a device copies other memory while the caller waits
  }

  std::uint64_t mark() override { return queue_.given(); }
  void wait(std::uint64_t mark) override { queue_.wait(mark); }

 private:
  void end(const DeviceCopy& copy, std::uint64_t number, bool fails) {
    if (!fails)
      for_each_row(copy, [&](const std::byte* from, std::byte* to) { std::memcpy(to, from, copy.row); });
    const std::lock_guard lock(driver_->mutex_);
    driver_->under_way_.erase(number);
    if (fails) throw Error(ErrorCode::kIo, "the simulated device fails");
  }

  std::shared_ptr<SimulatedDriver> driver_;
  const int device_;
  SimulatedQueue queue_;  // ends first: its work uses the rest
};

SimulatedDriver::SimulatedDriver(const SimulatedOptions& options)
    : options_(options),
      allocated_(static_cast<std::size_t>(options.devices), 0),
      copy_time_(options.copy_time),
      pin_limit_(std::numeric_limits<std::uint64_t>::max()) {
  callers_.push_back(std::make_unique<SimulatedQueue>());  // the default stream of all devices
}

SimulatedDriver::~SimulatedDriver() = default;

void SimulatedDriver::check_device(int device) const {
  if (device < 0 || device >= options_.devices)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no simulated device {}", device));
}

std::unique_ptr<DeviceStream> SimulatedDriver::open_stream(int device) {
  check_device(device);
  return std::make_unique<SimulatedStream>(shared_from_this(), device);
}

SimulatedQueue& SimulatedDriver::queue_of(void* stream) {
  const std::lock_guard lock(mutex_);
  return stream == nullptr ? *callers_.front() : *static_cast<SimulatedQueue*>(stream);
}

std::unique_ptr<DeviceFence> SimulatedDriver::fence(int device, void* stream) {
  check_device(device);
  return std::make_unique<SimulatedFence>(shared_from_this(), queue_of(stream));
}

void SimulatedDriver::launch(void* stream, std::function<void()> work, std::chrono::microseconds time) {
  queue_of(stream).add(std::move(work), time);
}

void* SimulatedDriver::open_callers_stream() {
  const std::lock_guard lock(mutex_);
  callers_.push_back(std::make_unique<SimulatedQueue>());
  return callers_.back().get();
}

std::uint64_t SimulatedDriver::free_memory(int device) {
  check_device(device);
  const std::lock_guard lock(mutex_);
  return options_.memory - allocated_[static_cast<std::size_t>(device)];
}

std::shared_ptr<std::byte> SimulatedDriver::allocate(int device, std::uint64_t bytes) {
  check_device(device);
  const std::uint64_t mapped = align_up(bytes, kPage);
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t& used = allocated_[static_cast<std::size_t>(device)];
    if (fail_allocations_ || bytes == 0 || mapped > options_.memory - used)
      throw Error(ErrorCode::kLimit, fmt::format("the simulated device has no {} bytes", bytes));
    used += mapped;
  }
  // The same pages twice: once where nobody may touch them.
  const int file = ::memfd_create("simulated-device", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(mapped)) != 0)
    misuse("no memory to simulate a device");
  void* outside = ::mmap(nullptr, mapped, PROT_NONE, MAP_SHARED, file, 0);
  void* inside = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (outside == MAP_FAILED || inside == MAP_FAILED) misuse("no memory to simulate a device");
  std::memset(inside, kPoison, mapped);
  auto* const memory = static_cast<std::byte*>(outside);
  const std::lock_guard lock(mutex_);
  memory_[memory] = {mapped, static_cast<std::byte*>(inside), device};
  use_.allocated += mapped;
  use_.most_allocated = std::max(use_.most_allocated, use_.allocated);
  return {memory, [self = shared_from_this()](std::byte* at) { self->free_memory_at(at); }};
}

void SimulatedDriver::free_memory_at(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  const auto at = memory_.find(memory);
  require_idle(memory, at->second.bytes, "memory of a device is freed while it is copied");
  ::munmap(memory, at->second.bytes);
  ::munmap(at->second.touchable, at->second.bytes);
  use_.allocated -= at->second.bytes;
  allocated_[static_cast<std::size_t>(at->second.device)] -= at->second.bytes;
  memory_.erase(at);
}

bool SimulatedDriver::pin(int device, void* memory, std::uint64_t bytes) {
  check_device(device);
  const std::lock_guard lock(mutex_);
  const auto* first = static_cast<const std::byte*>(memory);
  if (use_.pinned + bytes > pin_limit_ || is_pinned(first, bytes)) return false;
  pinned_[first] = {bytes};
  use_.pinned += bytes;
  use_.most_pinned = std::max(use_.most_pinned, use_.pinned);
  return true;
}

// Not a copy's fault, so nobody could catch it: the test ends here.
void SimulatedDriver::require_idle(const std::byte* first, std::uint64_t bytes, const char* what) const {
  for (const auto& [number, range] : under_way_) {
    if (range.first >= first + bytes || range.end <= first) continue;
    fmt::print(stderr, "simulated device: {}\n", what);
    std::abort();
  }
}

void SimulatedDriver::unpin(int, void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = pinned_.find(static_cast<const std::byte*>(memory));
  if (at == pinned_.end()) {
    fmt::print(stderr, "simulated device: memory is unpinned that was not pinned\n");
    std::abort();
  }
  require_idle(at->first, at->second.bytes, "memory is unpinned while it is copied");
  use_.pinned -= at->second.bytes;
  pinned_.erase(at);
}

bool SimulatedDriver::is_pinned(const std::byte* host, std::uint64_t bytes) const {
  auto after = pinned_.upper_bound(host);
  if (after != pinned_.begin()) {
    const auto& [first, piece] = *std::prev(after);
    if (host + bytes <= first + piece.bytes) return true;
    if (host < first + piece.bytes) misuse("a copy begins in pinned memory and ends outside");
  }
  if (after != pinned_.end() && after->first < host + bytes) misuse("a copy reaches into pinned memory");
  return false;
}

std::byte* SimulatedDriver::touchable(const std::byte* on_device, std::uint64_t bytes, int device) const {
  auto after = memory_.upper_bound(on_device);
  if (after == memory_.begin()) misuse("an address that is not the device's");
  const auto& [first, memory] = *std::prev(after);
  if (on_device + bytes > first + memory.bytes || memory.device != device)
    misuse("an address that is not the device's");
  return memory.touchable + (on_device - first);
}

Tensor SimulatedDriver::tensor(DType dtype, const Shape& shape, int device) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  view.device = {Device::Kind::kCuda, device};
  if (view.numel() == 0) return {view, nullptr};
  const std::shared_ptr<std::byte> memory = allocate(device, view.bytes());
  view.data = memory.get();
  return {view, memory};
}

TensorView SimulatedDriver::host_view(const TensorView& on_device) {
  const std::lock_guard lock(mutex_);
  TensorView view = on_device;
  view.device = {};
  if (view.numel() > 0) view.data = touchable(on_device.data, 1, on_device.device.index);
  return view;
}

void SimulatedDriver::limit_pinning(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  pin_limit_ = bytes;
}

void SimulatedDriver::fail_allocations(bool fail) {
  const std::lock_guard lock(mutex_);
  fail_allocations_ = fail;
}

void SimulatedDriver::fail_copies_from(std::uint64_t nth) {
  const std::lock_guard lock(mutex_);
  fail_from_ = nth == 0 ? 0 : use_.copies + nth;
}

void SimulatedDriver::set_copy_time(std::chrono::microseconds time) {
  const std::lock_guard lock(mutex_);
  copy_time_ = time;
}

SimulatedUse SimulatedDriver::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace cairn
