// Reads a DCP checkpoint: what is wanted of it, in parallel, checked on the way.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"
#include "engine/dcp_reader.h"
#include "engine/description.h"
#include "engine/item_reader.h"
#include "engine/read_work.h"

namespace cairn {
namespace {

constexpr std::uint64_t kThreadBytes = 10 << 20;  // kReadBuffer, and a block or two
constexpr int kMostThreads = 16;
constexpr int kLeastThreads = 8;  // more than cores may be: they wait for the disk

// Runs the units of a load on several threads. Ends with the first failure.
class Run {
 public:
  Run(const ReadWork& work, ItemReader& items, const ProgressCallback& progress)
      : work_(work), items_(items), progress_(progress) {}

  void on(int threads) {
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(threads));
    try {
      for (int i = 1; i < threads; ++i) others.emplace_back([this] { take_units(); });
    } catch (const std::system_error&) {
      // Fewer threads than asked for do the same work.
    }
    take_units();
    for (std::thread& thread : others) thread.join();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void take_units() noexcept {
    try {
      ItemReader::Scratch scratch(items_);
      while (!items_.stopped()) {
        const std::size_t unit = next_++;
        if (unit >= work_.units.size()) return;
        items_.run(work_.units[unit], scratch);
        report_progress();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_ == nullptr) failure_ = std::current_exception();
      items_.stop();
    }
  }

  void report_progress() {
    if (!progress_) return;
    const std::lock_guard lock(progress_mutex_);
    progress_({"read", items_.done(), work_.needed});
  }

  const ReadWork& work_;
  ItemReader& items_;
  const ProgressCallback& progress_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::mutex progress_mutex_;
};

}  // namespace

DcpReader::DcpReader(std::shared_ptr<const FileSystem> files, const ReadOptions& options)
    : files_(std::move(files)), options_(options) {
  if (files_ == nullptr) throw Error(ErrorCode::kInvalidArgument, "a reader needs a file system");
}

std::string DcpReader::fetch_description() {
  std::string description =
      fetch_dcp_description(*files_, options_.verify != Verify::kNone, options_.limits, &fetched_);
  fetched_digest_ = xxh3_128(as_bytes(description));
  return description;
}

const Metadata& DcpReader::set_up_storage_reader(std::string description, const ReaderRole& role) {
  role_ = role;
  const bool own = !fetched_.empty() && xxh3_128(as_bytes(description)) == fetched_digest_;
  std::vector<Metadata> parsed = std::exchange(fetched_, {});
  if (!own) parsed.clear();
  description_ = read_description(description, files_->root(), options_.verify != Verify::kNone,
                                  options_.limits, std::move(parsed));
  names_ = NameTable();
  names_.reserve(description_.metadata.state_dict_metadata.size());
  for (const auto& [name, entry] : description_.metadata.state_dict_metadata) names_.intern(name);
  return description_.metadata;
}

const ManifestFile* DcpReader::sums_of(const std::string& file) const {
  if (!description_.has_manifest) return nullptr;
  const auto known = description_.sums.find(file);
  if (known != description_.sums.end()) return &known->second;
  throw Error(ErrorCode::kCorrupt, "the manifest says nothing about the file")
      .in_file(files_->root() + "/" + file);
}

int DcpReader::threads() const {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int wanted =
      options_.threads > 0 ? options_.threads : std::min(std::max(cores, kLeastThreads), kMostThreads);
  const std::uint64_t fit = options_.memory_budget / 2 / kThreadBytes;
  return static_cast<int>(std::clamp<std::uint64_t>(fit, 1, static_cast<std::uint64_t>(wanted)));
}

void DcpReader::read_data(const LoadPlan& plan, LoadPlanner& planner, ReadReport& report) {
  const CheckpointView checkpoint{description_.metadata, names_, *files_,
                                  [this](const std::string& file) { return sums_of(file); }, options_.limits};
  ReadWork work = plan_reads(plan, checkpoint, options_.verify, threads());
  ItemReader items(work, planner, *files_, options_);
  try {
    Run(work, items, role_.progress)
        .on(static_cast<int>(std::min<std::size_t>(work.units.size(), static_cast<std::size_t>(threads()))));
  } catch (...) {
    items.fill(report);
    throw;
  }
  items.fill(report);
}

std::unique_ptr<StorageReader> dcp_reader(std::shared_ptr<const FileSystem> files,
                                          const ReadOptions& options) {
  return std::make_unique<DcpReader>(std::move(files), options);
}

}  // namespace cairn
