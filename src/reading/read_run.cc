#include "reading/read_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "base/parallel.h"
#include "cairn/error.h"
#include "reading/item_reader.h"

namespace cairn {
namespace {

constexpr std::uint64_t kThreadBytes = 10 << 20;    // kReadBuffer, and a block or two
constexpr std::uint64_t kFarThreadBytes = 2 << 20;  // what they read for each other is in one cache
constexpr int kMostThreads = 16;
constexpr int kFarThreads = 64;   // they wait
constexpr int kLeastThreads = 8;  // more than cores may be: they wait for the disk

// Runs the units of a load on several threads. Ends with the first failure.
class Run {
 public:
  Run(const ReadWork& work, ItemReader& items, const ReaderRole& role)
      : work_(work), items_(items), role_(role) {}

  void on(int threads) {
    share_work(
        threads, [this](int) { take_units(); }, [this] { items_.stop(); });
  }

 private:
  void take_units() {
    ItemReader::Scratch scratch(items_);
    while (!items_.stopped()) {
      const std::size_t unit = next_++;
      if (unit >= work_.units.size()) return;
      require_time();
      items_.run(work_.units[unit], scratch);
      report_progress();
    }
  }

  void require_time() const {
    if (std::chrono::steady_clock::now() > role_.deadline)
      throw Error(ErrorCode::kTimeout, "the load's deadline passed before all was read");
  }

  void report_progress() {
    if (!role_.progress) return;
    const std::lock_guard lock(progress_mutex_);
    role_.progress({"read", items_.done(), work_.needed});
  }

  const ReadWork& work_;
  ItemReader& items_;
  const ReaderRole& role_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex progress_mutex_;
};

}  // namespace

int threads_for(const ReadOptions& options, const FileSystem& files) {
  const bool far = files.is_far();
  const int suit = far ? kFarThreads : std::clamp(core_count(), kLeastThreads, kMostThreads);
  const int wanted = options.threads > 0 ? options.threads : suit;
  const std::uint64_t fit = options.memory_budget / 2 / (far ? kFarThreadBytes : kThreadBytes);
  return static_cast<int>(std::clamp<std::uint64_t>(fit, 1, static_cast<std::uint64_t>(wanted)));
}

void run_reads(ReadWork& work, LoadPlanner& planner, const FileSystem& files, const ReadOptions& options,
               const ReaderRole& role, ReadReport& report) {
  ItemReader items(work, planner, files, options);
  const auto threads = static_cast<std::size_t>(threads_for(options, files));
  try {
    Run(work, items, role).on(static_cast<int>(std::min(work.units.size(), threads)));
  } catch (...) {
    items.fill(report);
    throw;
  }
  items.fill(report);
}

}  // namespace cairn
