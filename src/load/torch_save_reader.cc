// Reads a state out of one file, by the rank that wants it or by one rank for all.
#include "cairn/torch_save.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "base/parallel.h"
#include "base/sink.h"
#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "checkpoint/checkpoint_source.h"
#include "device/device_sender.h"
#include "format/dcp_metadata.h"
#include "reading/stored_item.h"
#include "storage/scratch.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

constexpr std::uint64_t kPiece = 8 << 20;  // bytes that a thread reads at a time
constexpr int kMostThreads = 16;

// One call of read_data: its items cut into pieces, which threads take one by one.
class FileRead {
 public:
  FileRead(const CheckpointSource& source, const LoadPlan& plan, LoadPlanner& planner,
           const ReadOptions& options)
      : source_(source),
        planner_(planner),
        limits_(options.limits),
        devices_(options.devices),
        items_(plan.items.size()) {
    for (std::size_t i = 0; i < items_.size(); ++i) add(i, plan.items[i]);
  }

  void run(int threads) {
    std::deque<DeviceSenders> senders;  // one for each thread
    for (int i = 0; i < threads; ++i) senders.emplace_back(devices_, RingOptions{});
    for_each_in_parallel(pieces_.size(), threads, [&](std::size_t piece, int thread) {
      take(pieces_[piece], senders[static_cast<std::size_t>(thread)]);
    });
  }

  void fill(ReadReport& report, std::uint64_t verified) const {
    const std::uint64_t read = read_;
    report.needed += read;
    report.read += read;
    report.verified += std::min(read, verified);
    report.unverified += read - std::min(read, verified);
    for (const Item& item : items_)
      if (item.begun) report.written.push_back(item.read->dest_index.fqn);
    std::sort(report.written.begin(), report.written.end());
    report.written.erase(std::unique(report.written.begin(), report.written.end()), report.written.end());
  }

 private:
  struct Item {
    const ReadItem* read = nullptr;
    std::size_t tensor = 0;  // position in the source
    TensorView to;
    std::atomic<std::size_t> left = 0;  // pieces
    std::atomic<bool> begun = false;
  };
  struct ItemPart {
    std::size_t item;
    Box box;  // within the item; an object has none
  };

  void add(std::size_t number, const ReadItem& read) {
    Item& item = items_[number];
    item.read = &read;
    if (read.type != LoadItemType::kTensor) {
      pieces_.push_back({number, {}});
      return;
    }
    const std::string& name = read.storage_index.fqn;
    const std::optional<std::size_t> found = source_.checkpoint().find_tensor(name);
    if (!found) throw Error(ErrorCode::kNotFound, "the file has no such tensor").of_tensor(name);
    item.tensor = *found;
    require_inside(read, source_.checkpoint().tensors()[*found].shape);
    item.to = planner_.resolve_tensor(read);
    const std::uint64_t bytes = item_size(item.to.dtype);
    for_each_piece(
        Box::whole(read.lengths), kPiece,
        [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * bytes; },
        [&](const Box& box) {
          pieces_.push_back({number, box});
          ++item.left;
        });
    if (item.left == 0) planner_.commit_tensor(read, item.to);
  }

  // The destination may have been asked what the file holds (DynamicMetaLoadPlanner), and be wrong.
  static void require_inside(const ReadItem& read, const Shape& stored) {
    const Box wanted{read.storage_offsets, read.lengths};
    if (stored.rank() == wanted.rank() && Box::whole(stored).contains(wanted)) return;
    throw Error(ErrorCode::kInvalidArgument, "the file has the shape " + to_string(stored) + ", and " +
                                                 to_string(wanted) + " of it is wanted")
        .of_tensor(read.storage_index.fqn);
  }

  void take(const ItemPart& piece, DeviceSenders& senders) {
    Item& item = items_[piece.item];
    item.begun = true;
    try {
      if (item.read->type != LoadItemType::kTensor) return take_object(*item.read);
      take_elements(item, piece.box, senders);
      if (--item.left == 0) planner_.commit_tensor(*item.read, item.to);
    } catch (Error& e) {
      e.of_tensor(item.read->storage_index.fqn);
      throw;
    }
  }

  void take_elements(const Item& item, const Box& box, DeviceSenders& senders) {
    Selection selection;
    for (std::size_t d = 0; d < box.rank(); ++d)
      selection.push_back({item.read->storage_offsets[d] + box.offsets[d], box.sizes[d], 1});
    const TensorView to = item.to.narrow(box);
    if (to.device.is_cpu()) {
      source_.checkpoint().read_into(item.tensor, selection, to);
    } else {
      const Tensor here = Tensor::empty(to.dtype, to.shape);
      source_.checkpoint().read_into(item.tensor, selection, here.view());
      senders.to(to.device).send_copy(here.view(), to);
      senders.wait();
    }
    read_ += static_cast<std::uint64_t>(box.volume()) *
             item_size(source_.checkpoint().tensors()[item.tensor].dtype);
  }

  void take_object(const ReadItem& read) {
    std::string archive = source_.object_archive(read.storage_index.fqn);
    read_ += archive.size();
    if (std::string* const raw = planner_.resolve_bytes(read)) {
      *raw = std::move(archive);
    } else {
      planner_.load_bytes(read, load_object(memory_source(as_bytes(archive)), limits_));
    }
  }

  const CheckpointSource& source_;
  LoadPlanner& planner_;
  const Limits limits_;
  LazyDriver devices_;
  std::vector<Item> items_;
  std::vector<ItemPart> pieces_;
  std::atomic<std::uint64_t> read_ = 0;
};

class TorchSaveReader final : public StorageReader {
 public:
  TorchSaveReader(std::string path, const TorchSaveReadOptions& options)
      : path_(std::move(path)), options_(options) {}

  std::string fetch_description() override {
    Metadata metadata;
    PathMap paths;
    const std::vector<TensorSummary>& tensors = source().checkpoint().tensors();
    for (const SourceEntry& entry : source().entries()) {
      paths.add(entry.name, entry.path);
      if (!entry.tensor) {
        metadata.state_dict_metadata.emplace_back(entry.name, BytesStorageMetadata{});
        continue;
      }
      TensorStorageMetadata tensor;
      tensor.properties.dtype = tensors[*entry.tensor].dtype;
      tensor.size = tensors[*entry.tensor].shape;
      tensor.chunks = {Box::whole(tensor.size)};
      metadata.state_dict_metadata.emplace_back(entry.name, std::move(tensor));
    }
    metadata.planner_data = std::move(paths);
    StringSink sink;
    write_dcp_metadata(sink, metadata);
    return std::move(sink.text);
  }

  const Metadata& set_up_storage_reader(std::string description, const ReaderRole& role) override {
    role_ = role;
    metadata_ = read_dcp_metadata(*memory_source(as_bytes(description)), options_.read.limits);
    return metadata_;
  }

  std::vector<LoadPlan> prepare_global_plan(std::vector<LoadPlan> plans) override {
    if (options_.who == FileReads::kEveryRank) return plans;
    return share_reads(std::move(plans), &metadata_, role_.rank);
  }

  void read_data(const LoadPlan& plan, LoadPlanner& planner, ReadReport& report) override {
    if (plan.items.empty()) return;  // perhaps a rank that cannot open the file
    const std::uint64_t before = source().checks().verified();
    try {
      FileRead read(source(), plan, planner, options_.read);
      try {
        read.run(threads());
      } catch (...) {
        read.fill(report, source().checks().verified() - before);
        throw;
      }
      read.fill(report, source().checks().verified() - before);
    } catch (Error& e) {
      e.in_file(path_);
      throw;
    }
  }

 private:
  CheckpointSource& source() {
    if (source_ == nullptr) {
      source_ =
          std::make_unique<CheckpointSource>(path_, SourceOptions{.spill_directory = scratch_directory()});
    }
    return *source_;
  }

  int threads() const {
    return options_.read.threads > 0 ? options_.read.threads : std::min(core_count(), kMostThreads);
  }

  const std::string path_;
  const TorchSaveReadOptions options_;
  ReaderRole role_;
  std::unique_ptr<CheckpointSource> source_;
  Metadata metadata_;
};

}  // namespace

std::unique_ptr<StorageReader> torch_save_reader(const std::string& url,
                                                 const TorchSaveReadOptions& options) {
  return std::make_unique<TorchSaveReader>(url, options);
}

}  // namespace cairn
