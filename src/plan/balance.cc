// Who writes what: of the ranks that hold an item one is chosen, or several when the item is cut.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "plan/conflicts.h"
#include "plan/groups.h"
#include "plan/item_tables.h"

namespace cairn {
namespace {

// What an item costs beside its data: the archive around it. Keeps many small items from all landing on
// one rank.
constexpr std::int64_t kEnvelope = 1024;

// A part of an item that has been cut: `count` slices of dimension `dim`, from `begin`.
struct Slices {
  std::uint32_t item;
  std::uint32_t dim;
  std::int64_t begin;
  std::int64_t count;
};

class Balancer {
 public:
  Balancer(std::vector<SavePlan> all, const GlobalPlanOptions& options)
      : all_(std::move(all)), tables_(join_tables(all_)), options_(options), groups_(all_) {
    load_.resize(all_.size(), 0);
    kept_.resize(groups_.item_count(), 0);
  }

  void require_agreement() const { require_valid(find_conflicts(groups_, *tables_)); }

  std::vector<SavePlan> run() {
    if (options_.split.enabled || options_.dedup == DedupRule::kBalanced) measure();
    limit_ = options_.split.enabled ? split_limit() : std::numeric_limits<std::int64_t>::max();
    if (options_.dedup == DedupRule::kBalanced) {
      assign_largest_first();
    } else {
      for (std::uint32_t group = 0; group < groups_.size(); ++group) assign(group);
    }
    std::sort(pieces_.begin(), pieces_.end(), [](const Slices& a, const Slices& b) {
      return a.item != b.item ? a.item < b.item : a.begin < b.begin;
    });
    for (std::size_t rank = 0; rank < all_.size(); ++rank) keep_items(rank);
    return std::move(all_);
  }

 private:
  // What the rule counts for a group. DCP looks at the last rank's item, and at no less than 1.
  std::int64_t weight(std::uint32_t group) const {
    if (options_.dedup == DedupRule::kBalanced) return checked_add(bytes_[group], kEnvelope);
    const std::uint32_t last = groups_[group].back();
    const ItemRow& row = groups_.row(last);
    return row.is_tensor() ? std::max<std::int64_t>(blamed(last, global_bytes), 1) : 1;
  }

  // What each group's item really writes.
  void measure() {
    bytes_.reserve(groups_.size());
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      bytes_.push_back(blamed(groups_[group].front(), chunk_bytes));
    }
  }

  // A size of an item; a size that cannot be is the fault of the item's rank.
  std::int64_t blamed(std::uint32_t item, std::int64_t (*size)(const ItemRow&, const ItemTables&)) const {
    try {
      return size(groups_.row(item), *tables_);
    } catch (Error& e) {
      e.on_rank(static_cast<int>(groups_.rank_of(item)));
      throw;
    }
  }

  std::int64_t split_limit() const {
    std::int64_t total = 0;
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      total = checked_add(total, bytes_[group]);
    }
    const std::int64_t least = total / (options_.split.most_pieces + 64 * std::int64_t{groups_.size()}) + 1;
    if (options_.split.max_item_bytes > 0) return std::max(options_.split.max_item_bytes, least);
    const auto ranks = static_cast<std::int64_t>(std::max<std::size_t>(all_.size(), 1));
    return std::max({total / ranks / 8, options_.split.least_bytes, least});
  }

  // What only one rank holds is settled first; then the rest, large before small, so that the small ones
  // fill the gaps that the large ones leave.
  void assign_largest_first() {
    PodVector<std::uint32_t> shared;
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      const auto members = groups_[group];
      if (groups_.rank_of(members.front()) == groups_.rank_of(members.back())) {
        assign(group);
      } else {
        shared.push_back(group);
      }
    }
    std::stable_sort(shared.begin(), shared.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return bytes_[a] > bytes_[b]; });
    for (const std::uint32_t group : shared) assign(group);
  }

  void assign(std::uint32_t group) {
    if (limit_ != std::numeric_limits<std::int64_t>::max() && cut(group)) return;
    const std::uint32_t rank = choose(group);
    add_load(rank, weight(group));
    for (const std::uint32_t item : groups_[group]) kept_[item] = groups_.rank_of(item) == rank ? 1 : 0;
  }

  // The rank that writes: the lowest, or the least loaded, the lowest of those on a tie.
  std::uint32_t choose(std::uint32_t group) const {
    const auto members = groups_[group];
    std::uint32_t best = groups_.rank_of(members.front());
    if (options_.dedup == DedupRule::kLowestRank) return best;
    for (const std::uint32_t item : members) {
      const std::uint32_t rank = groups_.rank_of(item);
      if (load_[rank] < load_[best]) best = rank;
    }
    return best;
  }

  void add_load(std::uint32_t rank, std::int64_t bytes) { load_[rank] = checked_add(load_[rank], bytes); }

  // Cuts a group's item when it is too large and can be cut; false when it stays whole.
  bool cut(std::uint32_t group) {
    const std::int64_t bytes = bytes_[group];
    if (bytes <= limit_ || twice_in_one_plan(group)) return false;
    const ItemRow& row = groups_.row(groups_[group].front());
    if (!row.is_tensor()) return false;
    const auto sizes = tables_->dims[row.chunk_sizes];
    // The slowest dimension that has anything to cut.
    const auto dim = static_cast<std::size_t>(
        std::find_if(sizes.begin(), sizes.end(), [](std::int64_t n) { return n > 1; }) - sizes.begin());
    if (dim == sizes.size()) return false;
    const std::int64_t slices = sizes[dim];
    const std::int64_t slice_bytes = bytes / slices;
    const std::int64_t parts = std::min(slices, (bytes - 1) / limit_ + 1);
    const std::uint32_t writer = choose(group);
    for (std::int64_t part = 0, begin = 0; part < parts; ++part) {
      const std::int64_t count = slices / parts + (part < slices % parts ? 1 : 0);
      const std::uint32_t rank = options_.split.over_replicas ? choose(group) : writer;
      add_load(rank, checked_add(checked_mul(count, slice_bytes), kEnvelope));
      pieces_.push_back({item_on(group, rank), static_cast<std::uint32_t>(dim), begin, count});
      begin += count;
    }
    return true;
  }

  bool twice_in_one_plan(std::uint32_t group) const {
    const auto members = groups_[group];
    return std::adjacent_find(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) {
             return groups_.rank_of(a) == groups_.rank_of(b);
           }) != members.end();
  }

  std::uint32_t item_on(std::uint32_t group, std::uint32_t rank) const {
    const auto members = groups_[group];
    return *std::partition_point(members.begin(), members.end(),
                                 [&](std::uint32_t item) { return groups_.rank_of(item) < rank; });
  }

  // Replaces the rank's rows by those it keeps and the pieces it writes.
  void keep_items(std::size_t rank) {
    PodVector<ItemRow>& rows = all_[rank].items.rows().rows;
    const std::uint32_t base = groups_.first_item(rank);
    const auto first_piece =
        std::partition_point(pieces_.begin(), pieces_.end(), [&](const Slices& p) { return p.item < base; });
    auto piece = first_piece;
    PodVector<ItemRow> cut;  // only when this rank has pieces: else the rows move up in place
    const bool has_pieces = piece != pieces_.end() && piece->item < base + rows.size();
    std::size_t kept = 0;
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      if (has_pieces) {
        if (kept_[base + i] != 0) cut.push_back(rows[i]);
        for (; piece != pieces_.end() && piece->item == base + i; ++piece) {
          cut.push_back(piece_row(rows[i], *piece));
        }
      } else if (kept_[base + i] != 0) {
        rows[kept++] = rows[i];
      }
    }
    if (has_pieces) {
      rows = std::move(cut);
    } else {
      rows.truncate(kept);
    }
  }

  ItemRow piece_row(ItemRow row, const Slices& piece) {
    Shape offsets = tables_->dims.shape(row.chunk_offsets);
    Shape sizes = tables_->dims.shape(row.chunk_sizes);
    offsets[piece.dim] = checked_add(offsets[piece.dim], piece.begin);
    sizes[piece.dim] = piece.count;
    row.type = static_cast<std::uint32_t>(WriteItemType::kShard);
    row.offset = row.chunk_offsets = tables_->dims.intern(offsets.dims());
    row.chunk_sizes = tables_->dims.intern(sizes.dims());
    return row;
  }

  std::vector<SavePlan> all_;
  std::shared_ptr<ItemTables> tables_;
  GlobalPlanOptions options_;
  ItemGroups groups_;
  std::int64_t limit_ = 0;
  PodVector<std::int64_t> bytes_;  // by group
  PodVector<std::int64_t> load_;   // by rank
  PodVector<std::uint8_t> kept_;   // by item
  std::vector<Slices> pieces_;
};

}  // namespace

std::vector<SavePlan> balance_save_plans(std::vector<SavePlan> all, const GlobalPlanOptions& options) {
  Balancer balancer(std::move(all), options);
  balancer.require_agreement();
  return balancer.run();
}

std::vector<SavePlan> dedup_save_plans(std::vector<SavePlan> all, DedupRule rule) {
  GlobalPlanOptions options;
  options.dedup = rule;
  options.split.enabled = false;
  return Balancer(std::move(all), options).run();
}

}  // namespace cairn
