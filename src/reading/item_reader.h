// Brings the items of a load to their destinations, unit by unit, from many threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/pod_vector.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"
#include "device/device_sender.h"
#include "format/known_archives.h"
#include "format/torch_file.h"
#include "reading/memory_budget.h"
#include "reading/planned_source.h"
#include "reading/read_box.h"
#include "reading/read_work.h"

namespace cairn {

// What the threads of one load share. run() may be called by many threads at once, each unit by one of them.
class ItemReader {
 public:
  ItemReader(ReadWork& work, LoadPlanner& planner, const FileSystem& files, const ReadOptions& options);
  ~ItemReader();

  // What a thread keeps from unit to unit.
  struct Scratch {
    explicit Scratch(ItemReader& reader) : senders(reader.devices_, {}) {}
    PodVector<std::byte> bytes;
    KnownArchives known;
    DeviceSenders senders;
    std::vector<std::pair<std::size_t, TensorView>> sent;  // items on their way to a device
  };
  // Errors name the tensor, the file and the place in it.
  void run(const ReadUnit& unit, Scratch& scratch);

  // After one failure: all other reads end as soon as they can.
  void stop() { tally_.stop = true; }
  bool stopped() const { return tally_.stop; }

  std::uint64_t done() const { return done_; }  // needed bytes that have arrived
  // What was read so far, and which destinations were written.
  void fill(ReadReport& report) const;

 private:
  struct OpenFile {
    std::mutex mutex;
    std::shared_ptr<const PlannedSource> source;
    std::shared_ptr<const PlannedSource> of_small;  // reads more at once where the file is far
    std::atomic<std::size_t> units = 0;             // still to be done
  };
  struct LargeRead;

  const OpenFile& opened(std::uint32_t file);
  void finish_unit(std::uint32_t file);
  void run_small(const ReadUnit& unit, Scratch& scratch);
  void read_small(std::size_t at, const PlannedSource& source, Scratch& scratch);
  // Of compressed items: item_reader_packed.cc.
  static std::uint64_t memory_for(const WantedItem& wanted);
  bool is_too_large(const WantedItem& wanted) const;
  bool read_streamed(std::size_t at, Scratch& scratch);
  std::unique_ptr<ItemDecoder> decoder_of(const WantedItem& wanted, std::shared_ptr<const ByteSource> stored,
                                          std::uint64_t most) const;
  static void stream_to(const TensorView& to, const StoredElements& elements, const ReadItem& item,
                        Scratch& scratch);
  void read_transformed(std::size_t at, const std::string& name, Scratch& scratch);
  void read_tensor(std::size_t at, ByteSpan item, const std::string& name, Scratch& scratch);
  bool is_taken_over(const Error& e, std::size_t at, ByteSpan archive);
  void deliver(std::size_t at, const TensorView& chunk, Scratch& scratch);
  void read_object(std::size_t at, ByteSpan item, const std::string& name);
  void commit_sent(Scratch& scratch);
  void run_large(const ReadUnit& unit, Scratch& scratch);
  void read_part(LargeRead& large, std::size_t at, const Selection& selection, const TensorView& to,
                 Scratch& scratch);
  void open_large(LargeRead& large, std::size_t at);
  void finish_large(LargeRead& large, std::size_t at);
  TensorView destination(std::size_t at);
  bool is_checked(const WantedItem& wanted) const;
  Error told(const Error& e, const WantedItem& wanted) const;

  ReadWork& work_;
  LoadPlanner& planner_;
  const FileSystem& files_;
  const ReadOptions options_;
  LazyDriver devices_;
  ReadTally tally_;
  BlockCache cache_;
  BlockCache far_cache_;  // of files that are far
  MemoryBudget memory_;
  std::unique_ptr<OpenFile[]> open_;
  std::unique_ptr<std::unique_ptr<LargeRead>[]> large_;
  std::unique_ptr<std::atomic<bool>[]> written_;  // by item
  std::atomic<std::uint64_t> done_ = 0;
};

}  // namespace cairn
