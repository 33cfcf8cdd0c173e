#include "convert/convert_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cairn/error.h"
#include "reading/read_box.h"
#include "tensor/pieces.h"
#include "tensor/selection.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLeastItem = 1U << 20, kMostItem = 64U << 20;
constexpr std::size_t kMostPieces = 1U << 20;  // of tensors that are cut
constexpr std::size_t kMostSpare = 64;         // buffers; as many threads as that never give back at once

std::uint64_t item_limit(const ConvertOptions& options) {
  if (options.max_item_bytes > 0) return options.max_item_bytes;
  return std::clamp<std::uint64_t>(options.memory_budget / 16, kLeastItem, kMostItem);
}

}  // namespace

// Buffers that are used again: fresh memory costs a page fault for every 4 KiB.
class ConvertItems::Memory : public std::enable_shared_from_this<Memory> {
 public:
  explicit Memory(std::uint64_t budget) : budget_(budget) {
    spare_.reserve(kMostSpare);  // what is given back must not need memory
  }

  Tensor take(DType dtype, const Shape& shape, std::uint64_t bytes) {
    auto held = std::make_unique<Held>(shared_from_this(), bytes);
    held->memory = spare_of(bytes);
    std::byte* data = held->memory.view().data;
    return {TensorView::contiguous(data, dtype, shape), std::shared_ptr<Held>(std::move(held))};
  }

 private:
  // What an item holds while it is written: its part of the budget, with what reading it may take.
  struct Held {
    Held(std::shared_ptr<Memory> from, std::uint64_t bytes)
        : owner(std::move(from)), claim(owner->budget_, bytes + kReadBuffer) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { owner->give_back(std::move(memory)); }
    std::shared_ptr<Memory> owner;
    MemoryBudget::Claim claim;
    Tensor memory;
  };

  Tensor spare_of(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Tensor& t) {
      return t.view().bytes() >= bytes && t.view().bytes() / 2 <= bytes;
    };
    const auto found = std::find_if(spare_.begin(), spare_.end(), fits);
    if (found == spare_.end()) {
      spare_.clear();  // of another size: the budget is for what is in use
      return Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(bytes)});
    }
    Tensor memory = std::move(*found);
    spare_.erase(found);
    return memory;
  }

  void give_back(Tensor memory) {
    if (memory.view().bytes() < kLeastItem) return;
    const std::lock_guard lock(mutex_);
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(memory));
  }

  MemoryBudget budget_;
  std::mutex mutex_;
  std::vector<Tensor> spare_;
};

ConvertItems::ConvertItems(const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
                           const ConvertOptions& options)
    : source_(source),
      options_(options),
      most_bytes_(item_limit(options)),
      memory_(std::make_shared<Memory>(options.memory_budget / 2)),
      plans_(static_cast<std::size_t>(options.ranks)),
      loads_(static_cast<std::size_t>(options.ranks)) {
  for (const ConvertEntry& entry : entries) {
    by_name_.emplace(entry.name, &entry);
    paths_.add(entry.name, entry.path);
    if (entry.tensor) {
      cut(entry);
    } else {
      give(WriteItem::bytes(entry.name), 0);
    }
    total_ += entry.bytes;
  }
}

void ConvertItems::cut(const ConvertEntry& entry) {
  if (entry.bytes <= most_bytes_)
    return give(WriteItem::tensor(entry.name, entry.dtype, entry.shape), entry.bytes);
  const std::uint64_t item = item_size(entry.dtype);
  const auto size_of = [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item; };
  const auto check = [&](std::uint64_t pieces) {
    if (pieces <= kMostPieces) return;
    throw Error(ErrorCode::kLimit,
                fmt::format("too large for items of {} bytes; a larger memory budget or larger items help",
                            most_bytes_))
        .of_tensor(entry.name);
  };
  check(pieces_ + entry.bytes / most_bytes_);  // so many at least: before the first takes memory
  for_each_piece(Box::whole(entry.shape), most_bytes_, size_of, [&](const Box& box) {
    check(++pieces_);
    give(WriteItem::shard(entry.name, entry.dtype, entry.shape, box), size_of(box));
  });
}

void ConvertItems::give(const WriteItem& item, std::uint64_t bytes) {
  const auto least =
      static_cast<std::size_t>(std::min_element(loads_.begin(), loads_.end()) - loads_.begin());
  plans_[least].push_back(item);
  loads_[least] += bytes;
}

SavePlan ConvertItems::plan_of(int rank) const {
  SavePlan plan;
  plan.items = WriteItems(plans_[static_cast<std::size_t>(rank)]);
  if (rank == 0) {
    plan.planner_data = paths_;
  } else {
    plan.planner_data = PathMap();
  }
  return plan;
}

Tensor ConvertItems::read(const WriteItem& item) {
  const ConvertEntry& entry = *by_name_.at(item.index.fqn);
  const Box& box = item.tensor_data->chunk;
  const std::uint64_t bytes = static_cast<std::uint64_t>(box.volume()) * item_size(entry.dtype);
  Tensor tensor = memory_->take(entry.dtype, box.sizes, bytes);
  source_.checkpoint().read_into(*entry.tensor, selection_of(box), tensor.view());
  report(bytes);
  return tensor;
}

std::string ConvertItems::read_archive(const std::string& name) const {
  return source_.object_archive(by_name_.at(name)->from);
}

void ConvertItems::report(std::uint64_t bytes) {
  if (!options_.progress) return;
  const std::lock_guard lock(progress_);
  done_ += bytes;
  options_.progress({"convert", done_, total_});
}

}  // namespace cairn
