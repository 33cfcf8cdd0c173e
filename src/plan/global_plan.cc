#include <utility>
#include <vector>

#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "plan/item_tables.h"
#include "plan/merge_paths.h"

namespace cairn {
namespace {

[[noreturn]] void refuse(const ItemTables& tables, const ItemRow& row, std::size_t rank, const char* why) {
  throw Error(ErrorCode::kInvalidArgument, why)
      .of_tensor(tables.names[row.name])
      .on_rank(static_cast<int>(rank))
      .while_doing("joining the plans of all ranks");
}

class Describer {
 public:
  explicit Describer(std::vector<SavePlan>& all) : all_(all), tables_(*join_tables(all)) {
    entries_.resize(tables_.names.size());
  }

  // Two walks: the first counts each tensor's chunks, so that the second never moves one.
  Metadata run(bool rewrite_hints) {
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      for (const ItemRow& row : all_[rank].items.rows().rows) count(row, rank);
    }
    for (SavePlan& plan : all_) {
      for (ItemRow& row : plan.items.rows().rows) {
        if (row.is_tensor()) add_chunk(row, rewrite_hints);
      }
    }
    return std::move(metadata_);
  }

 private:
  struct Entry {
    TensorStorageMetadata* tensor = nullptr;
    std::uint32_t position = kNoEntry;  // in the metadata
    std::uint32_t chunks = 0;
  };

  void count(const ItemRow& row, std::size_t rank) {
    Entry& entry = entries_[row.name];
    if (entry.position == kNoEntry) {
      add_entry(entry, row);
    } else if (!row.is_shard()) {
      refuse(tables_, row, rank, "is written a second time, and not as a shard");
    } else if (!is_tensor_[entry.position]) {
      refuse(tables_, row, rank, "is an object on one rank and a tensor on another");
    }
    ++entry.chunks;
  }

  void add_entry(Entry& entry, const ItemRow& row) {
    entry.position = static_cast<std::uint32_t>(metadata_.state_dict_metadata.size());
    is_tensor_.push_back(row.is_tensor());
    StorageMetadata stored = BytesStorageMetadata{};
    if (row.is_tensor()) {
      const TensorSpec spec = tables_.spec(row.tensor);
      stored = TensorStorageMetadata{tables_.properties(spec), tables_.dims.shape(spec.size), {}, {}, {}};
    }
    metadata_.state_dict_metadata.emplace_back(std::string(tables_.names[row.name]), std::move(stored));
  }

  void add_chunk(ItemRow& row, bool rewrite_hints) {
    Entry& entry = entries_[row.name];
    if (entry.tensor == nullptr) {
      entry.tensor =
          std::get_if<TensorStorageMetadata>(&metadata_.state_dict_metadata[entry.position].second);
      entry.tensor->chunks.reserve(entry.chunks);
    }
    if (rewrite_hints) row.hint = static_cast<std::uint32_t>(entry.tensor->chunks.size());
    entry.tensor->chunks.push_back(
        {Shape(tables_.dims[row.chunk_offsets]), Shape(tables_.dims[row.chunk_sizes])});
  }

  std::vector<SavePlan>& all_;
  ItemTables& tables_;
  std::vector<Entry> entries_;   // by name
  std::vector<bool> is_tensor_;  // by position
  Metadata metadata_;
};

}  // namespace

GlobalSavePlan create_default_global_save_plan(std::vector<SavePlan> all, bool rewrite_index_hints) {
  Metadata metadata = Describer(all).run(rewrite_index_hints);
  metadata.planner_data = merge_paths(all);
  return {std::move(all), std::make_shared<const Metadata>(std::move(metadata))};
}

}  // namespace cairn
