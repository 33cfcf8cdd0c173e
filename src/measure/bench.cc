#include "measure/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "base/checked.h"
#include "base/parallel.h"
#include "cairn/async.h"
#include "cairn/cairn.h"
#include "cairn/verify.h"
#include "measure/bench_place.h"
#include "measure/raw_limit.h"
#include "storage/page_cache.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSlack = 64U << 20;  // of room: descriptions, padding, the file system's own
constexpr int kAsyncSaves = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

BenchOptions checked(BenchOptions options) {
  const auto bad = [](std::string text) { throw Error(ErrorCode::kInvalidArgument, std::move(text)); };
  if (options.tensors < 1) bad("a state to measure with has at least one tensor");
  if (options.repetitions < 1) bad("something is measured at least once");
  if (options.bytes < static_cast<std::uint64_t>(options.tensors) * sizeof(float))
    bad(fmt::format("{} bytes are too few for {} tensors", options.bytes, options.tensors));
  if (options.bytes > (std::uint64_t{1} << 50)) bad("more than a PiB to measure with");
  return options;
}

// The bytes of every tensor; large ones are aligned as an allocator would align them.
std::uint64_t tensor_bytes(const BenchOptions& options) {
  const std::uint64_t least = options.bytes / static_cast<std::uint64_t>(options.tensors);
  const std::uint64_t unit = least >= (64U << 10) ? kDirectAlignment : sizeof(float);
  return (least + unit - 1) / unit * unit;
}

class Bench {
 public:
  Bench(const std::string& path, const BenchOptions& options)
      : options_(checked(options)), place_(path), each_(tensor_bytes(options_)) {
    report_.checkpoint = place_.checkpoint();
    report_.file_system = place_.file_system();
    report_.cores = core_count();
    report_.tensors = options_.tensors;
    report_.bytes = checked_mul(each_, static_cast<std::uint64_t>(options_.tensors));
    const auto rounds = static_cast<std::uint64_t>(3 * options_.repetitions + kAsyncSaves);
    total_ = report_.bytes * (2 * raw_ways().size() + rounds);
  }

  BenchReport run() {
    try {
      place_.require_room(report_.bytes + report_.bytes / 64 + kSlack);
      BenchPlace::require_memory((place_.is_in_memory() ? 3 : 2) * report_.bytes + kSlack);
      make_state();
      raw();
      save_and_load();
      in_background();
    } catch (...) {
      if (is_cancelled()) throw Error(ErrorCode::kCancelled, "interrupted; what was made is removed");
      throw;
    }
    if (options_.keep) place_.keep();
    return std::move(report_);
  }

 private:
  bool is_cancelled() const { return options_.cancelled != nullptr && *options_.cancelled; }
  void require_wanted() const {
    if (is_cancelled()) throw Error(ErrorCode::kCancelled, "interrupted");
  }

  // Called by any thread. Throwing here is what stops a load or a verification.
  void advance(std::string_view phase, std::uint64_t bytes) {
    require_wanted();
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    options_.progress({phase, std::min(done_, total_), total_});
  }
  // For operations that say how far they are, not how far they came.
  ProgressCallback advance_to(std::string_view phase) {
    return [this, phase, last = std::uint64_t{0}](const Progress& progress) mutable {
      advance(phase, progress.done - std::min(progress.done, last));
      last = progress.done;
    };
  }

  // One piece of memory, different everywhere, and tensors that are parts of it.
  void make_state() {
    const std::uint64_t rounded =
        (report_.bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    memory_ = Tensor::empty(DType::kInt32, {static_cast<std::int64_t>(rounded / sizeof(std::int32_t))});
    auto* words = reinterpret_cast<std::uint32_t*>(memory_.bytes().data());
    for (std::uint64_t i = 0; i < rounded / sizeof(*words); ++i) {
      words[i] = static_cast<std::uint32_t>(i) * 2654435761U;
      if (i % (16U << 20) == 0) require_wanted();
    }
    const auto count = static_cast<std::int64_t>(each_ / sizeof(std::int32_t));
    for (std::int64_t i = 0; i < report_.tensors; ++i)
      state_.set(fmt::format("t{}", i),
                 Value(Tensor(memory_.view().narrow({{i * count}, {count}}), memory_.owner())));
  }

  void raw() {
    RawOptions options;
    options.moved = [this](std::uint64_t bytes) { advance("raw", bytes); };
    const RawLimit limit = raw_limit(place_.raw(), memory_.bytes(), options);
    const auto told = [](const RawTime& time) {
      return RawTiming{time.seconds, time.way.files, time.way.direct};
    };
    report_.raw_write = told(limit.write);
    report_.raw_read = told(limit.read);
    report_.cold = limit.cold;
  }

  double best_of(const std::function<void()>& before, const std::function<void()>& work) const {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < options_.repetitions; ++i) {
      require_wanted();
      before();
      const Clock::time_point start = Clock::now();
      work();
      best = std::min(best, seconds_since(start));
    }
    return best;
  }

  SaveOptions save_options(std::string_view phase) {
    SaveOptions save;
    save.write.files_per_rank = options_.files;
    save.progress = advance_to(phase);
    return save;
  }

  void save_and_load() {
    const std::string& where = report_.checkpoint;
    report_.save = best_of([&] { place_.remove_checkpoint(); },
                           [&] {
                             SaveOptions options = save_options("save");
                             options.cancelled = options_.cancelled;
                             save(state_, where, options);
                           });
    const auto forget = [&] { report_.cold = forget_cached(where) && report_.cold; };
    report_.load = best_of(forget, [&] {
      LoadOptions options;
      options.progress = advance_to("load");
      load(state_, where, options);
    });
    report_.verify = best_of(forget, [&] {
      VerifyOptions options;
      options.progress = advance_to("verify");
      const VerifyReport found = verify(where, options);
      if (!found.ok()) throw Error(ErrorCode::kCorrupt, to_string(found.problems.front()));
    });
    for (const auto& entry : std::filesystem::directory_iterator(where))
      report_.files += entry.path().extension() == ".distcp" ? 1 : 0;
  }

  AsyncTiming save_in_background(AsyncSaver& saver) {
    AsyncTiming timing;
    const Clock::time_point start = Clock::now();
    const SaveHandle handle = saver.async_save(state_, report_.checkpoint, save_options("async_save"));
    timing.returned = seconds_since(start);
    handle.wait_staged();
    timing.staged = seconds_since(start);
    while (!handle.done()) {
      if (is_cancelled()) handle.cancel();
      try {
        handle.wait(Clock::now() + std::chrono::milliseconds(20));
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kTimeout) throw;
      }
    }
    handle.wait();
    timing.done = seconds_since(start);
    return timing;
  }

  void in_background() {
    AsyncSaver saver({.mode = StagingMode::kOverlapped, .at_exit = AtExit::kCancel});
    for (int i = 0; i < kAsyncSaves; ++i) {
      require_wanted();
      place_.remove_checkpoint();
      const AsyncTiming timing = save_in_background(saver);
      if (i == 0) report_.first_async = timing;
      if (i == 1 || (i > 1 && timing.done < report_.next_async.done)) report_.next_async = timing;
    }
  }

  const BenchOptions options_;
  BenchPlace place_;
  const std::uint64_t each_;  // bytes of a tensor
  BenchReport report_;
  Tensor memory_;
  StateDict state_;

  std::mutex mutex_;  // guards what follows
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

BenchReport bench(const std::string& path, const BenchOptions& options) { return Bench(path, options).run(); }

}  // namespace cairn
