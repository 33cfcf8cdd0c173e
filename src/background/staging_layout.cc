#include "background/staging_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/checked.h"
#include "cairn/error.h"
#include "state/nesting.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLeastPaged = 64U << 10;  // tensors of this size on are written past the page cache
constexpr std::uint64_t kSmallAlignment = 64;
constexpr std::uint64_t kMostItemAlignment = 16;

// The memory from a view's first byte to its last.
struct ViewExtent {
  const std::byte* first = nullptr;
  std::uint64_t bytes = 0;
  bool dense = false;  // the view needs all of it

  const std::byte* end() const { return first + bytes; }
};

ViewExtent view_extent(const TensorView& view) {
  std::int64_t before = 0;
  std::int64_t behind = 0;
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < view.shape.rank(); ++i) {
    if (view.shape[i] == 1 || view.strides[i] == 0) continue;
    const std::int64_t reach = checked_mul(view.shape[i] - 1, view.strides[i]);
    (reach < 0 ? before : behind) = checked_add(reach < 0 ? before : behind, reach);
    elements = checked_mul(elements, view.shape[i]);
  }
  const auto item = static_cast<std::int64_t>(item_size(view.dtype));
  const std::int64_t spanned = checked_add(behind - before, std::int64_t{1});
  return {view.data + checked_mul(before, item), static_cast<std::uint64_t>(checked_mul(spanned, item)),
          elements >= spanned};
}

// Lists the tensors of a state, depth first.
class Collector {
 public:
  explicit Collector(std::vector<StagedTensor>& tensors) : tensors_(tensors) {}

  void visit(Value& value, const std::string& name, int depth) {
    check_nesting(depth);
    if (auto* dict = value.get_if<Dict>()) return visit(*dict, name, depth + 1);
    if (auto* list = value.get_if<List>()) return visit(*list, name, depth + 1);
    if (auto* tuple = value.get_if<Tuple>()) return visit(tuple->items, name, depth + 1);
    if (auto* tensor = value.get_if<Tensor>()) return add(*tensor, name);
    if (auto* sharded = value.get_if<ShardedTensor>())
      for (LocalShard& shard : sharded->shards) add(shard.data, name);
  }

  void visit(Dict& dict, const std::string& name, int depth) {
    for (auto& [key, value] : dict) visit(value, below(name, to_string(key)), depth);
  }

 private:
  static std::string below(const std::string& name, const std::string& step) {
    return name.empty() ? step : name + "." + step;
  }

  void visit(List& list, const std::string& name, int depth) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      // A long list of plain numbers needs no names.
      if (list[i].is_tensor() || list[i].is<Dict>() || list[i].is<List>() || list[i].is<Tuple>())
        visit(list[i], below(name, std::to_string(i)), depth);
    }
  }

  void add(Tensor& tensor, const std::string& name) {
    const TensorView& view = tensor.view();
    if (view.numel() == 0) {
      tensor = Tensor::empty(view.dtype, Shape(view.shape));
      return;
    }
    if (view.data == nullptr)
      throw Error(ErrorCode::kInvalidArgument, "the tensor has no memory")
          .of_tensor(name)
          .while_doing("staging");
    tensors_.push_back({name, &tensor, tensor});
  }

  std::vector<StagedTensor>& tensors_;
};

// Dense extents of one place, those that overlap made one.
std::vector<StagedRun> merged(std::vector<ViewExtent> dense, std::size_t place) {
  std::sort(dense.begin(), dense.end(),
            [](const ViewExtent& a, const ViewExtent& b) { return std::less<>()(a.first, b.first); });
  std::vector<StagedRun> runs;
  for (const ViewExtent& extent : dense) {
    if (!runs.empty() && extent.first < runs.back().from + runs.back().bytes) {
      const auto reach = static_cast<std::uint64_t>(extent.end() - runs.back().from);
      runs.back().bytes = std::max(runs.back().bytes, reach);
    } else {
      runs.push_back({extent.first, extent.bytes, place});
    }
  }
  return runs;
}

// The run that has all of an extent; null when none has.
const StagedRun* run_with(const std::vector<StagedRun>& runs, const ViewExtent& extent) {
  auto after = std::upper_bound(runs.begin(), runs.end(), extent.first,
                                [](const std::byte* at, const StagedRun& run) { return at < run.from; });
  if (after == runs.begin()) return nullptr;
  const StagedRun& run = *--after;
  return extent.end() <= run.from + run.bytes ? &run : nullptr;
}

class Placer {
 public:
  std::uint64_t next(std::uint64_t bytes, std::uint64_t shift = 0) {
    const std::uint64_t at = align_up(end_, bytes >= kLeastPaged ? kStagingPage : kSmallAlignment) + shift;
    end_ = checked_add(at, bytes);
    return at;
  }
  std::uint64_t end() const { return end_; }

 private:
  std::uint64_t end_ = 0;
};

bool same_view(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}

// Gives each gathered tensor of a place its memory; equal views share one.
void place_gathered(StagingLayout& layout, std::size_t place, Placer& placer) {
  std::map<const std::byte*, std::vector<std::size_t>> by_address;
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    StagedTensor& tensor = layout.tensors[i];
    if (!tensor.gathered || tensor.place != place) continue;
    std::vector<std::size_t>& known = by_address[tensor.live.view().data];
    const auto equal = std::find_if(known.begin(), known.end(), [&](std::size_t other) {
      return same_view(layout.tensors[other].live.view(), tensor.live.view());
    });
    if (equal != known.end()) {
      tensor.at = layout.tensors[*equal].at;
      continue;
    }
    tensor.at = placer.next(tensor.live.view().bytes());
    known.push_back(i);
    layout.gathered.push_back(i);
  }
}

// The devices that have tensors, the CPU last; tells each tensor its place.
std::vector<StagedPlace> places_of(std::vector<StagedTensor>& tensors) {
  std::vector<StagedPlace> places;
  const auto rank = [](Device device) { return std::pair(device.is_cpu(), device.index); };
  const auto less = [&](const StagedPlace& a, Device device) { return rank(a.device) < rank(device); };
  const auto find = [&](Device device) {
    return std::lower_bound(places.begin(), places.end(), device, less);
  };
  for (const StagedTensor& tensor : tensors) {
    const Device device = tensor.live.view().device;
    const auto at = find(device);
    if (at == places.end() || at->device != device) places.insert(at, {device, 0});
  }
  for (StagedTensor& tensor : tensors)
    tensor.place = static_cast<std::size_t>(find(tensor.live.view().device) - places.begin());
  return places;
}

void fill_place(StagingLayout& layout, const std::vector<ViewExtent>& extents, std::size_t place) {
  std::vector<ViewExtent> dense;
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (layout.tensors[i].place == place && extents[i].dense) dense.push_back(extents[i]);
  std::vector<StagedRun> runs = merged(std::move(dense), place);
  Placer placer;
  for (StagedRun& run : runs) {
    // An element that was aligned stays aligned, wherever in the run it is.
    run.at = placer.next(run.bytes, reinterpret_cast<std::uintptr_t>(run.from) % kMostItemAlignment);
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    StagedTensor& tensor = layout.tensors[i];
    if (tensor.place != place) continue;
    const StagedRun* run = run_with(runs, extents[i]);
    tensor.gathered = run == nullptr;
    if (run != nullptr) tensor.at = run->at + static_cast<std::uint64_t>(tensor.live.view().data - run->from);
  }
  place_gathered(layout, place, placer);
  layout.places[place].bytes = placer.end();
  layout.runs.insert(layout.runs.end(), runs.begin(), runs.end());
}

}  // namespace

StagingLayout lay_out(StateDict& state) {
  StagingLayout layout;
  Collector(layout.tensors).visit(state, "", 0);
  layout.places = places_of(layout.tensors);
  std::vector<ViewExtent> extents;
  extents.reserve(layout.tensors.size());
  for (const StagedTensor& tensor : layout.tensors) extents.push_back(view_extent(tensor.live.view()));
  for (std::size_t place = 0; place < layout.places.size(); ++place) fill_place(layout, extents, place);
  return layout;
}

Tensor StagingLayout::copy_of(std::size_t i, std::byte* memory, Device device,
                              const std::shared_ptr<void>& owner) const {
  TensorView view = tensors[i].live.view();
  view.data = memory + tensors[i].at;
  view.device = device;
  if (tensors[i].gathered) view.strides = contiguous_strides(view.shape);
  return {std::move(view), owner};
}

ByteSpan StagingLayout::bytes_of_copy(std::size_t i, std::byte* memory) const {
  const ViewExtent extent = view_extent(copy_of(i, memory, {}, nullptr).view());
  return {extent.first, extent.bytes};
}

void StagingLayout::put(std::size_t place, std::byte* memory, Device device,
                        const std::shared_ptr<void>& owner) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].place == place) *tensors[i].target = copy_of(i, memory, device, owner);
}

}  // namespace cairn
