// How a checkpoint gets onto storage and back: StorageWriter and StorageReader, in DCP's words.
//
// save() and load() call one writer or reader on each rank, in the order the methods stand here. The defaults
// (dcp_writer, dcp_reader) keep a checkpoint as DCP's files in a FileSystem; a subclass may keep it anywhere.
//
//   auto files = std::shared_ptr(file_system_of("run/step-1000", {.create = true}));
//   auto writer = dcp_writer(files, {.files_per_rank = 8});
//   save(state, "step-1000", {.group = &group, .writer = writer.get()});
//
// Threads: a writer or reader belongs to one save or load at a time, and its methods are called one after the
// other by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/device.h"
#include "cairn/error.h"
#include "cairn/limits.h"
#include "cairn/metadata.h"
#include "cairn/plan.h"
#include "cairn/planner.h"
#include "cairn/storage.h"
#include "cairn/transform.h"

namespace cairn {

// How far a save or a load has come on this rank.
struct Progress {
  std::string_view phase;   // "write", "read", "verify"
  std::uint64_t done = 0;   // bytes
  std::uint64_t total = 0;  // bytes
};
using ProgressCallback = std::function<void(const Progress&)>;  // called by any thread, one at a time

// --- saving ---

// Who a writer is in the group, and which save this is.
struct WriterRole {
  int rank = 0;
  int world_size = 1;
  bool is_coordinator = true;
  bool collective = true;  // false: this rank writes files and metadata of its own (`use_collectives`)
  SaveId save_id{};        // the same on all ranks of a collective save
  // The same on all ranks of a save that is not collective, as far as they could tell each other: so that
  // what a rank left behind of an earlier attempt is not taken for a part of this one. Zeros: they could not.
  SaveId attempt{};
  // Nothing may be published after this.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  ProgressCallback progress = {};
  // When it becomes true, a writer stops soon, between two pieces of a tensor, with Error(kCancelled).
  const std::atomic<bool>* cancelled = nullptr;
};

// What a rank has written.
struct WrittenData {
  std::vector<WriteResult> results;  // one for each item of the plan
  std::string attachment;            // the writer's own bytes, carried to finish() as they are
};

class StorageWriter {
 public:
  virtual ~StorageWriter() = default;

  // What the storage says of itself, for the planner.
  virtual std::optional<StorageMeta> storage_meta() const { return std::nullopt; }

  // On the coordinator before all others, then on every rank. Here the coordinator takes what only one save
  // at a time may have. Error(kConflict) when another save has it.
  virtual void set_up_storage_writer(const WriterRole& role) = 0;

  virtual SavePlan prepare_local_plan(SavePlan plan) { return plan; }  // on every rank
  // On the coordinator. What it sets as storage_data reaches the rank with its plan.
  virtual std::vector<SavePlan> prepare_global_plan(std::vector<SavePlan> plans) { return plans; }

  // On every rank: the items' bytes are on storage, as durable as was asked for, when it returns. Nobody can
  // mistake them for a checkpoint yet.
  virtual WrittenData write_data(const SavePlan& plan, SavePlanner& planner) = 0;

  // On the coordinator, when every rank has written every item of its plan: makes the checkpoint appear, in
  // one step. Adds the places of the items to `metadata`.
  virtual void finish(Metadata& metadata, std::vector<WrittenData> all) = 0;

  // On the coordinator, after finish(): what every rank is told of it (SaveResult::announcement).
  virtual std::string announcement() { return {}; }

  // On the coordinator of a save that is not collective, when finish() has returned on every rank: what the
  // ranks wrote takes the place of an earlier checkpoint of all ranks together.
  virtual void retire_collective() {}

  // On every rank when the save has failed, before or after write_data: what this rank wrote may go, unless
  // the checkpoint appeared all the same.
  virtual void abandon() noexcept {}

  // What the caller should know of this save, though it went on. Asked on every rank when it is done.
  virtual std::vector<std::string> warnings() const { return {}; }

  // Whether the checkpoint of this save is there: asked by a rank that never heard how the save ended.
  virtual bool is_published() { return false; }
};

// What to do when the file system seems too small for what is going to be written, before the first byte of
// it is. Items that are compressed are counted as they are before that.
enum class OnLowSpace : std::uint8_t {
  kError,
  kIgnore,
  kWarn,  // go on, and say so in SaveResult::warnings
};

struct WriteOptions {
  bool overwrite = true;  // a checkpoint of this id is replaced; otherwise Error(kConflict)
  // Written at the same time; 0: as many as cores, up to 16, and to a bucket at least 8.
  int files_per_rank = 0;
  // Every item has a file of its own; files_per_rank of them are written at a time.
  bool file_per_item = false;
  int spare_cores = 0;  // left to others in that; a save in the background leaves at least one
  // Memory for buffers, beyond the state itself.
  std::uint64_t memory_budget = std::uint64_t{256} << 20;
  bool durable = true;         // false: a loss of power may cost the new checkpoint (never the old one)
  bool checksums = true;       // false: no manifest, and zip records without CRC
  bool strong_hashes = false;  // an XXH3-128 per block beside the CRC-32
  std::vector<std::string> transforms = {};  // of each item, in order: "zstd"
  // In their place, and for all that is done to an item: code of the caller's. Null: none.
  std::shared_ptr<ItemTransform> transform = nullptr;
  Limits limits = {};  // of those who will read it: what is larger is not written
  OnLowSpace low_space = OnLowSpace::kError;
  // At most so many bytes a second go to storage from this rank, for disks that others use too; 0: no limit.
  std::uint64_t bytes_per_second = 0;
  DeviceUse devices =
      {};  // tensors in a device's memory pass through pinned buffers, a part of memory_budget
};

// DCP's files in a file system: data, manifest, metadata.
std::unique_ptr<StorageWriter> dcp_writer(std::shared_ptr<FileSystem> files,
                                          const WriteOptions& options = {});

// --- loading ---

struct ReaderRole {
  int rank = 0;
  int world_size = 1;
  bool is_coordinator = true;
  ProgressCallback progress = {};
  // The other ranks give up then, so that what is read later is read in vain: Error(kTimeout).
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// How much of what is read is checked against the checkpoint's checksums.
enum class Verify : std::uint8_t {
  kNone,
  kUsual,  // everything that costs at most 5 % more bytes than the load needs; the rest is counted
  kFull,   // everything, whatever it costs
};

struct ReadOptions {
  Verify verify = Verify::kUsual;
  int threads = 0;  // 0: as many as cores, at least 8 and at most 16
  std::uint64_t memory_budget = std::uint64_t{256} << 20;
  Limits limits = {};
  DeviceUse devices = {};  // as in WriteOptions
  // Undoes what the reader does not know how to. Null: such items are Error(kUnsupported).
  std::shared_ptr<ItemTransform> transform = nullptr;
  // Where load() itself opens the directory: files that are symbolic links are read, by their bare names.
  bool follow_links = true;
};

// What read_data did, in bytes of files.
struct ReadReport {
  std::uint64_t needed = 0;      // the bytes of the wanted elements and objects, as stored
  std::uint64_t read = 0;        // from storage, everything counted: archive headers, blocks for verification
  std::uint64_t verified = 0;    // of those, found equal to what was written
  std::uint64_t unverified = 0;  // of those, not checked
  std::vector<std::string> written;  // names of entries whose destination was written, sorted, each once
  // How often the load began again because the checkpoint was replaced meanwhile. The rest counts from there.
  int restarts = 0;
};

class StorageReader {
 public:
  virtual ~StorageReader() = default;

  // What every rank has to know of the checkpoint, as bytes: called on the coordinator and sent to all.
  virtual std::string fetch_description() = 0;
  // On every rank: understands it. The result is valid as long as the reader.
  virtual const Metadata& set_up_storage_reader(std::string description, const ReaderRole& role) = 0;

  virtual LoadPlan prepare_local_plan(LoadPlan plan) { return plan; }  // every rank
  virtual std::vector<LoadPlan> prepare_global_plan(std::vector<LoadPlan> plans) {
    return plans;
  }  // coordinator
  // Whether prepare_global_plan leaves every plan as it is when none depends on another rank's: plans then
  // need not be gathered. The same on all ranks.
  virtual bool plans_alone() const { return false; }

  // On every rank: reads the items and hands them to the planner (resolve_tensor, commit_tensor, load_bytes).
  // `report` is true at every moment, also when it throws.
  virtual void read_data(const LoadPlan& plan, LoadPlanner& planner, ReadReport& report) = 0;

  // Whether another checkpoint has taken the place of the one that was described, so that all ranks begin
  // again with fetch_description(). Asked on a rank that has failed with `error`; and with null on the
  // coordinator, when every rank has read everything: what was read may then be of two checkpoints.
  virtual bool was_replaced(const Error* /*error*/) { return false; }

  // What the caller should know, though the load went on. Asked on the coordinator when it is done.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// A DCP checkpoint in a file system, whoever wrote it.
std::unique_ptr<StorageReader> dcp_reader(std::shared_ptr<const FileSystem> files,
                                          const ReadOptions& options = {});

}  // namespace cairn
