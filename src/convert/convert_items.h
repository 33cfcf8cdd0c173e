// The entries of a conversion as items of a save.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/seeded_hash.h"
#include "cairn/plan.h"
#include "convert/convert_entries.h"
#include "reading/memory_budget.h"

namespace cairn {

// Shared by all ranks. Borrows all it is given.
class ConvertItems {
 public:
  // Large tensors are cut, so that what is in memory at one time fits the budget; items go to the rank that
  // has the fewest bytes so far.
  ConvertItems(const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
               const ConvertOptions& options);

  SavePlan plan_of(int rank) const;

  // By many threads at once. The elements of a tensor's chunk, in memory that is used again once the result
  // is gone; waits until there is some.
  Tensor read(const WriteItem& item);
  std::string read_archive(const std::string& name) const;

 private:
  class Memory;
  void cut(const ConvertEntry& entry);
  void give(const WriteItem& item, std::uint64_t bytes);
  void report(std::uint64_t bytes);

  const CheckpointSource& source_;
  const ConvertOptions& options_;
  std::uint64_t most_bytes_;  // of an item
  std::shared_ptr<Memory> memory_;
  MapByName<std::string, const ConvertEntry*> by_name_;
  PathMap paths_;
  std::vector<std::vector<WriteItem>> plans_;  // by rank
  std::vector<std::uint64_t> loads_;           // bytes, by rank
  std::size_t pieces_ = 0;                     // of tensors that were cut
  std::mutex progress_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace cairn
