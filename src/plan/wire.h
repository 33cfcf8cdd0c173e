// Plans and results as bytes, for the way between ranks.
//
// A message is a fixed header and flat little-endian arrays: names, lists of dimensions, tensor
// descriptions, one row of 28 bytes per item, paths. docs/planning.md draws it. Whoever sends a message is
// not trusted: a decoder checks every size and every number against the bytes that are there, throws
// Error(kCorrupt) (another version: kUnsupported; another world size, or a rank twice: kConflict), and
// allocates a few blocks, none larger than the message justifies.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/pod_vector.h"
#include "cairn/plan.h"
#include "plan/item_tables.h"

namespace cairn {

inline constexpr std::uint16_t kPlanWireVersion = 1;

enum class PlanMessage : std::uint8_t { kLocalPlan = 1, kGlobalPlan = 2, kWriteResults = 3, kLoadPlan = 4 };

// Encodes plans one after the other. Plans that share their tables are encoded in time proportional to
// their items, whatever the tables hold. Two plans that mean the same have the same bytes.
class PlanEncoder {
 public:
  std::string encode(PlanMessage kind, const SavePlan& plan, int rank, int world_size);

 private:
  // Numbers in the message for numbers in the tables, valid when the stamp is this message's.
  struct Slot {
    std::uint32_t stamp = 0;
    std::uint32_t id = 0;
  };
  struct Sections;
  void start(const ItemTables& tables);
  std::uint32_t name(std::uint32_t id, Sections& out);
  std::uint32_t dims(std::uint32_t id, Sections& out);
  std::uint32_t spec(std::uint32_t id, Sections& out);
  void add_paths(const PathMap& paths, Sections& out) const;

  const ItemTables* tables_ = nullptr;
  std::uint32_t stamp_ = 0;
  PodVector<Slot> names_;
  PodVector<Slot> dims_;
  PodVector<Slot> specs_;
};

std::string encode_local_plan(const SavePlan& plan, int rank, int world_size);   // rank -> coordinator
std::string encode_global_plan(const SavePlan& plan, int rank, int world_size);  // coordinator -> rank
SavePlan decode_global_plan(ByteSpan message, int rank, int world_size);

// The local plans of all ranks, arriving in any order. They end up with one set of tables between them,
// and what ranks say alike (names, paths) is kept once.
class PlanGather {
 public:
  explicit PlanGather(int world_size);

  void add(ByteSpan message);
  // The plans by rank. Error(kConflict) when ranks are missing.
  std::vector<SavePlan> take();

 private:
  using Digest = std::array<std::byte, 16>;
  std::vector<SavePlan> plans_;
  std::vector<bool> arrived_;
  std::shared_ptr<ItemTables> tables_;
  // What earlier messages said word for word: the names' numbers in tables_, and the paths.
  std::map<Digest, PodVector<std::uint32_t>> names_;
  std::map<Digest, PathMap> paths_;
};

std::string encode_write_results(const std::vector<WriteResult>& results, int rank, int world_size);
// Calls `each` with every result in order. The same object is used for all of them.
void decode_write_results(ByteSpan message, int rank, int world_size,
                          const std::function<void(const WriteResult&)>& each);

}  // namespace cairn
