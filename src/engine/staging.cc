#include "cairn/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "cairn/error.h"
#include "engine/staging_copy.h"
#include "engine/staging_layout.h"
#include "engine/staging_memory.h"

namespace cairn {
namespace {

constexpr std::size_t kMostNames = 100;  // in a message

int thread_count(int wanted) {
  if (wanted < 0 || wanted > 1024)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} threads; 0 (chosen here) to 1024", wanted));
  if (wanted > 0) return wanted;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
}

// A live tensor and its copy.
struct Pair {
  std::string name;
  Tensor live;
  Tensor copy;
};

void require_unchanged(const std::vector<Pair>& pairs) {
  std::string names;
  std::size_t changed = 0;
  for (const Pair& pair : pairs) {
    if (Value(pair.live) == Value(pair.copy)) continue;
    if (++changed <= kMostNames) names += (names.empty() ? "'" : ", '") + pair.name + "'";
  }
  if (changed == 0) return;
  throw Error(ErrorCode::kConflict,
              fmt::format("{} tensors changed while they were copied: {}{}; wait until the snapshot is whole "
                          "(SaveHandle::guard) before the state changes",
                          changed, names, changed > kMostNames ? ", ..." : ""))
      .while_doing("comparing the snapshot with the live state");
}

class CpuStager final : public Stager {
 public:
  explicit CpuStager(const StagingOptions& options)
      : threads_(thread_count(options.threads)),
        compare_(options.compare),
        memory_(std::make_shared<StagingMemory>(options.budget)) {}

  Snapshot stage(const StateDict& state, const StageRequest& request) override {
    Snapshot snapshot;
    snapshot.state = state;
    const StagingLayout layout = lay_out(snapshot.state);
    const std::shared_ptr<void> memory = memory_->take(layout.bytes, request.deadline);
    layout.place(static_cast<std::byte*>(memory.get()), memory);
    auto copying =
        std::make_shared<StagingCopy>(layout, static_cast<std::byte*>(memory.get()),
                                      [end = end_of(layout, memory)] { require_unchanged(end.pairs); });
    snapshot.bytes = layout.bytes;
    snapshot.whole = copying->whole();
    snapshot.copied = copying->copied();
    remember(snapshot.whole);
    copying->run(threads_, request.overlapped);
    snapshot.copying = std::move(copying);
    if (!request.overlapped) snapshot.whole.get();
    return snapshot;
  }

  void synchronize() override {
    std::vector<std::shared_future<void>> all;
    {
      const std::lock_guard lock(mutex_);
      all = under_way_;
    }
    for (const std::shared_future<void>& one : all) one.wait();
  }

  void close() override {
    synchronize();
    memory_->trim();
  }

 private:
  // What has to live, and to be looked at, until the copy has ended.
  struct End {
    std::shared_ptr<void> memory;
    std::vector<Tensor> live;
    std::vector<Pair> pairs;  // to be compared
  };
  End end_of(const StagingLayout& layout, const std::shared_ptr<void>& memory) const {
    End end;
    end.memory = memory;
    for (const StagedTensor& tensor : layout.tensors) {
      end.live.push_back(tensor.live);
      if (compare_) end.pairs.push_back({tensor.name, tensor.live, *tensor.target});
    }
    return end;
  }

  void remember(const std::shared_future<void>& whole) {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [](const std::shared_future<void>& one) {
      return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    under_way_.push_back(whole);
  }

  const int threads_;
  const bool compare_;
  const std::shared_ptr<StagingMemory> memory_;
  std::mutex mutex_;  // guards under_way_
  std::vector<std::shared_future<void>> under_way_;
};

}  // namespace

std::unique_ptr<Stager> default_stager(const StagingOptions& options) {
  return std::make_unique<CpuStager>(options);
}

}  // namespace cairn
