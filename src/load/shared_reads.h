// Items that several ranks want and one of them reads: their bytes go round by round from readers to all.
//
// A round carries at most `round_bytes` from each rank. Large items travel in pieces, in the element type
// they are stored in; objects as their archive. What comes from another rank is not trusted: Error(kCorrupt).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "device/device_sender.h"

namespace cairn {

// One rank's side of the exchange. `plan` is the rank's own, finished; everything is borrowed.
class SharedReads {
 public:
  SharedReads(const LoadPlan& plan, int rank, const Metadata& metadata, StorageReader& reader,
              LoadPlanner& planner, const ReadOptions& options, std::uint64_t round_bytes,
              ReadReport& report);

  // Those items of the plan that the rank reads for itself alone.
  static LoadPlan without_shared(const LoadPlan& plan);

  // Reads the next pieces this rank has to read, puts them where this rank wants them, and returns them for
  // the others. Empty when there are no more.
  std::string next_round();
  bool has_more() const { return next_ < pieces_.size(); }
  // What another rank's next_round returned.
  void receive(std::string_view message);
  // After the last round: Error(kCorrupt) when something did not arrive.
  void require_complete() const;

 private:
  struct ItemPart {
    std::size_t item;
    Box box;  // within the item; objects: none
  };
  class Capture;

  void cut(std::size_t item);
  std::string key_of(const ReadItem& item) const;
  DType stored_dtype(const ReadItem& item) const;
  std::uint64_t bytes_of(const ItemPart& piece) const;
  void deliver(const ItemPart& piece, DType dtype, std::string& bytes);
  void note_written(const std::string& name);

  const LoadPlan& plan_;
  const int rank_;
  const Metadata& metadata_;
  StorageReader& reader_;
  LoadPlanner& planner_;
  const Limits limits_;
  LazyDriver devices_;
  DeviceSenders senders_{devices_, {}};
  const std::uint64_t round_bytes_;
  ReadReport& report_;
  std::vector<ItemPart> pieces_;      // that this rank reads
  std::set<std::size_t> for_others_;  // items
  std::size_t next_ = 0;
  std::map<std::string, std::vector<std::size_t>, std::less<>> expected_;  // by key_of: items from others
  std::map<std::size_t, std::uint64_t> missing_;                           // elements of those, still to come
  std::map<std::string, DType, std::less<>> dtypes_;
};

}  // namespace cairn
