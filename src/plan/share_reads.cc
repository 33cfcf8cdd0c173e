#include <algorithm>
#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/name_table.h"
#include "cairn/plan_steps.h"
#include "plan/checkpoint_index.h"

namespace cairn {
namespace {

// One item of one rank, and the stretch of numbers that says what it reads: name, kind, chunk, part.
struct Wanted {
  std::size_t key_begin;
  std::size_t key_size;
  int rank;
  std::size_t item;
};

class Sharing {
 public:
  Sharing(std::vector<LoadPlan>& plans, const Metadata* metadata, std::optional<int> reader)
      : plans_(plans), only_reader_(reader), load_(plans.size(), 0) {
    if (metadata != nullptr) index_.emplace(*metadata);
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      plans[rank].shared.clear();
      for (std::size_t i = 0; i < plans[rank].items.size(); ++i) add(static_cast<int>(rank), i);
    }
  }

  void run() {
    // Equal keys side by side; first appearance decides the order of the groups, as it does in a save.
    std::stable_sort(wanted_.begin(), wanted_.end(),
                     [&](const Wanted& a, const Wanted& b) { return std::is_lt(compare(a, b)); });
    std::vector<std::pair<std::size_t, std::size_t>> groups;
    for (std::size_t begin = 0; begin < wanted_.size();) {
      std::size_t end = begin + 1;
      while (end < wanted_.size() && std::is_eq(compare(wanted_[begin], wanted_[end]))) ++end;
      if (wanted_[begin].rank == wanted_[end - 1].rank &&
          only_reader_.value_or(wanted_[begin].rank) == wanted_[begin].rank) {
        for (std::size_t i = begin; i < end; ++i) load_[rank_of(wanted_[i])] += bytes_of(wanted_[i]);
      } else {
        groups.emplace_back(begin, end);
      }
      begin = end;
    }
    std::sort(groups.begin(), groups.end(), [&](const auto& a, const auto& b) {
      return wanted_[a.first].key_begin < wanted_[b.first].key_begin;
    });
    for (const auto& [begin, end] : groups) assign(begin, end);
    for (LoadPlan& plan : plans_) {
      std::sort(plan.shared.begin(), plan.shared.end(),
                [](const SharedRead& a, const SharedRead& b) { return a.item < b.item; });
    }
  }

 private:
  void add(int rank, std::size_t item) {
    const ReadItem& read = plans_[static_cast<std::size_t>(rank)].items[item];
    const std::size_t begin = keys_.size();
    keys_.push_back(names_.intern(read.storage_index.fqn));
    keys_.push_back(static_cast<std::int64_t>(read.type));
    if (read.type == LoadItemType::kTensor) {
      if (read.storage_index.offset) append(*read.storage_index.offset);
      append(read.storage_offsets);
      append(read.lengths);
    }
    wanted_.push_back({begin, keys_.size() - begin, rank, item});
  }

  void append(const Shape& shape) { keys_.insert(keys_.end(), shape.begin(), shape.end()); }

  std::strong_ordering compare(const Wanted& a, const Wanted& b) const {
    const auto* first = keys_.data();
    return std::lexicographical_compare_three_way(first + a.key_begin, first + a.key_begin + a.key_size,
                                                  first + b.key_begin, first + b.key_begin + b.key_size);
  }

  static std::size_t rank_of(const Wanted& wanted) { return static_cast<std::size_t>(wanted.rank); }

  std::uint64_t bytes_of(const Wanted& wanted) const {
    const ReadItem& item = plans_[rank_of(wanted)].items[wanted.item];
    if (item.type == LoadItemType::kByteIO) return 1;
    const auto elements = static_cast<std::uint64_t>(item.lengths.numel());
    if (!index_) return elements;
    const auto position = index_->find(item.storage_index.fqn);
    if (!position) return elements;
    const StorageMetadata& stored = index_->metadata().state_dict_metadata[*position].second;
    const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
    return tensor == nullptr ? elements : elements * item_size(tensor->properties.dtype);
  }

  // Members of a group stand in the order of their ranks.
  void assign(std::size_t begin, std::size_t end) {
    const auto lighter = [&](const Wanted& a, const Wanted& b) {
      return load_[rank_of(a)] < load_[rank_of(b)];
    };
    const auto first = wanted_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = wanted_.begin() + static_cast<std::ptrdiff_t>(end);
    Wanted reader = *std::min_element(first, last, lighter);  // the first of equal ones
    SharedRead mine;
    if (only_reader_) {
      const auto found = std::find_if(first, last, [&](const Wanted& w) { return w.rank == *only_reader_; });
      mine.for_others = found == last;
      reader = found == last ? lent(*first) : *found;
    }
    load_[rank_of(reader)] += bytes_of(reader);
    mine.item = reader.item;
    mine.reader = reader.rank;
    for (auto it = first; it != last; ++it) {
      if (it->rank == reader.rank) continue;
      plans_[rank_of(*it)].shared.push_back({it->item, reader.rank});
      if (mine.receivers.empty() || mine.receivers.back() != it->rank) mine.receivers.push_back(it->rank);
    }
    plans_[rank_of(reader)].shared.push_back(std::move(mine));
  }

  // The only reader's own item for what others want.
  Wanted lent(Wanted wanted) {
    LoadPlan& plan = plans_[static_cast<std::size_t>(*only_reader_)];
    plan.items.push_back(ReadItem(plans_[rank_of(wanted)].items[wanted.item]));
    wanted.rank = *only_reader_;
    wanted.item = plan.items.size() - 1;
    return wanted;
  }

  std::vector<LoadPlan>& plans_;
  const std::optional<int> only_reader_;
  std::optional<CheckpointIndex> index_;
  NameTable names_;
  std::vector<std::int64_t> keys_;
  std::vector<Wanted> wanted_;
  std::vector<std::uint64_t> load_;  // bytes to read, by rank
};

}  // namespace

std::vector<LoadPlan> share_reads(std::vector<LoadPlan> all, const Metadata* metadata,
                                  std::optional<int> reader) {
  Sharing(all, metadata, reader).run();
  return all;
}

}  // namespace cairn
