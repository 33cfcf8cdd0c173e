// The reading half of hf_quantized.h: tiles of quantised tensors, brought to their destinations by threads.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/parallel.h"
#include "base/seeded_hash.h"
#include "cairn/dequantize.h"
#include "cairn/error.h"
#include "device/device_sender.h"
#include "load/hf_quantized.h"
#include "reading/read_box.h"
#include "reading/read_run.h"
#include "tensor/pieces.h"
#include "tensor/selection.h"

namespace cairn {
namespace {

constexpr std::uint64_t kTileBytes = 2 << 20;  // of the result

// Counts what is read of it.
class CountedSource final : public ByteSource {
 public:
  CountedSource(std::shared_ptr<const ByteSource> file, std::atomic<std::uint64_t>& read)
      : file_(std::move(file)), read_(read) {}
  std::uint64_t size() const override { return file_->size(); }
  const std::string& name() const override { return file_->name(); }
  bool prefers_alignment() const override { return file_->prefers_alignment(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    file_->read_at(offset, to);
    read_ += to.size();
  }

 private:
  std::shared_ptr<const ByteSource> file_;
  std::atomic<std::uint64_t>& read_;
};

// The tensors as they are stored, read box by box. May be used by many threads at once.
class StoredTensors {
 public:
  explicit StoredTensors(const QuantizedSource& from) : from_(from) {}

  const TensorStorageMetadata& tensor(std::size_t position) const {
    return std::get<TensorStorageMetadata>(from_.stored.state_dict_metadata[position].second);
  }
  const std::string& name(std::size_t position) const {
    return from_.stored.state_dict_metadata[position].first;
  }
  std::string file(std::size_t position, std::size_t chunk = 0) const {
    return from_.files.root() + "/" + place(position, chunk).relative_path;
  }
  std::uint64_t bytes_read() const { return read_; }

  // A box of one chunk, counted from the chunk's beginning.
  void read_chunk(std::size_t position, std::size_t chunk, const Box& box, const TensorView& to) {
    const StorageInfo where = place(position, chunk);
    const Shape& shape = tensor(position).chunks[chunk].sizes;
    const auto source = open(where.relative_path);
    StoredElements elements{source.get(),
                            static_cast<std::uint64_t>(where.offset),
                            static_cast<std::uint64_t>(where.length),
                            0,
                            tensor(position).properties.dtype,
                            shape,
                            contiguous_strides(shape),
                            std::nullopt};
    try {
      read_box(elements, selection_of(box), to);
    } catch (Error& e) {
      e.in_file(source->name());
      throw;
    }
  }

  // A box of the whole tensor, of as many chunks as it takes.
  void read(std::size_t position, const Box& box, const TensorView& to) {
    const std::vector<Box>& chunks = tensor(position).chunks;
    std::int64_t found = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const std::optional<Box> common = intersect(chunks[i], box);
      if (!common) continue;
      Box there = *common, here = *common;
      for (std::size_t d = 0; d < box.rank(); ++d) {
        there.offsets[d] -= chunks[i].offsets[d];
        here.offsets[d] -= box.offsets[d];
      }
      read_chunk(position, i, there, to.narrow(here));
      found += common->volume();
    }
    if (found == box.volume()) return;
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the files hold {} of the {} scales of {}", found, box.volume(), to_string(box)))
        .of_tensor(name(position))
        .in_file(file(position));
  }

 private:
  StorageInfo place(std::size_t position, std::size_t chunk) const {
    const StorageData& places = from_.stored.storage_data;
    return places.info(places.find(name(position), &tensor(position).chunks[chunk].offsets).value());
  }

  std::shared_ptr<const ByteSource> open(const std::string& file) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const ByteSource>& source = open_[file];
    if (source == nullptr) source = std::make_shared<CountedSource>(from_.files.open(file), read_);
    return source;
  }

  const QuantizedSource& from_;
  std::mutex mutex_;
  MapByName<std::string, std::shared_ptr<const ByteSource>> open_;
  std::atomic<std::uint64_t> read_ = 0;
};

// One item of the plan.
struct Wanted {
  const ReadItem* item = nullptr;
  std::size_t position = 0;
  std::size_t chunk = 0;
  QuantizedTensor how;

  std::mutex mutex;
  bool resolved = false;
  TensorView to;
  Tensor scales;  // of the whole tensor, when they are few
  std::atomic<std::size_t> left = 0;
};

struct Tile {
  Wanted* wanted = nullptr;
  Box box;  // of the dequantised chunk
};

class QuantizedReads {
 public:
  QuantizedReads(const QuantizedSource& from, LoadPlanner& planner, const ReadOptions& options)
      : from_(from), stored_(from), planner_(planner), devices_(options.devices) {}

  void add(const ReadItem& item) {
    auto wanted = std::make_unique<Wanted>();
    wanted->item = &item;
    wanted->position = from_.names.find(item.storage_index.fqn).value();
    wanted->how = from_.quantized.at(wanted->position);
    try {
      wanted->chunk = find_chunk(item, shown(*wanted));
      check(*wanted);
    } catch (Error& e) {
      e.of_tensor(item.storage_index.fqn).in_file(stored_.file(wanted->position));
      throw;
    }
    const std::uint64_t item_bytes = item_size(from_.dequantize.to);
    const std::size_t before = tiles_.size();
    for_each_piece(
        Box{item.storage_offsets, item.lengths}, kTileBytes,
        [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item_bytes; },
        [&](const Box& box) {
          tiles_.push_back({wanted.get(), box});
        });
    wanted->left = tiles_.size() - before;
    wanted_.push_back(std::move(wanted));
  }

  void run(int threads) {
    for (const auto& wanted : wanted_)
      if (wanted->left == 0) finish(*wanted);  // nothing is wanted of it
    std::deque<DeviceSenders> senders;         // one for each thread
    for (int i = 0; i < threads; ++i) senders.emplace_back(devices_, RingOptions{});
    for_each_in_parallel(tiles_.size(), threads, [&](std::size_t tile, int thread) {
      take(tiles_[tile], senders[static_cast<std::size_t>(thread)]);
    });
  }

  void fill(ReadReport& report) const {
    for (const auto& wanted : wanted_) {
      if (wanted->resolved && wanted->item->lengths.numel() > 0)
        report.written.push_back(wanted->item->dest_index.fqn);
    }
    report.needed += needed_;
    report.read += stored_.bytes_read();
    report.unverified += stored_.bytes_read();
  }

 private:
  const TensorStorageMetadata& shown(const Wanted& wanted) const {
    return std::get<TensorStorageMetadata>(from_.shown.state_dict_metadata[wanted.position].second);
  }

  static std::size_t find_chunk(const ReadItem& item, const TensorStorageMetadata& tensor) {
    for (std::size_t i = 0; i < tensor.chunks.size(); ++i) {
      const Box& chunk = tensor.chunks[i];
      if (!item.storage_index.offset || chunk.offsets != *item.storage_index.offset) continue;
      const Box part{item.storage_offsets, item.lengths};
      if (part.offsets.rank() == chunk.rank() && part.rank() == chunk.rank() &&
          Box::whole(chunk.sizes).contains(part))
        return i;
    }
    throw Error(ErrorCode::kInvalidArgument, "the checkpoint has no such part of the tensor");
  }

  // That the scales are those of the tensor.
  void check(const Wanted& wanted) const {
    const TensorStorageMetadata& tensor = stored_.tensor(wanted.position);
    const TensorStorageMetadata& scales = stored_.tensor(wanted.how.scales);
    Shape expected;
    if (wanted.how.scheme == Scheme::kBlockScales) {
      if (tensor.size.rank() != 2) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("Unsupported quantization types: a tensor of shape {} with scales '{}'",
                                to_string(tensor.size), stored_.name(wanted.how.scales)));
      }
      const std::int64_t block = from_.dequantize.block;
      expected = {(tensor.size[0] + block - 1) / block, (tensor.size[1] + block - 1) / block};
    } else {
      expected = Shape(tensor.size.dims().first(tensor.size.rank() - 1));
      const Box& chunk = tensor.chunks[wanted.chunk];
      if (chunk.sizes[chunk.rank() - 1] != tensor.size[tensor.size.rank() - 1])
        throw Error(ErrorCode::kUnsupported, "a file holds parts of MXFP4 groups");
    }
    const bool mxfp4 = wanted.how.scheme == Scheme::kMxfp4;
    if (scales.size == expected && (!mxfp4 || scales.properties.dtype == DType::kUInt8)) return;
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the scales '{}' are {} {}, but a tensor of shape {} needs {}{}",
                            stored_.name(wanted.how.scales), name_of(scales.properties.dtype),
                            to_string(scales.size), to_string(tensor.size), to_string(expected),
                            mxfp4 ? " of uint8" : fmt::format(" in blocks of {}", from_.dequantize.block)))
        .in_file(stored_.file(wanted.how.scales));
  }

  void take(const Tile& tile, DeviceSenders& senders) {
    try {
      read(tile, senders);
    } catch (Error& e) {
      e.of_tensor(tile.wanted->item->storage_index.fqn);
      throw;
    }
  }

  // The destination, and the scales that all tiles share: found once.
  void resolve(Wanted& wanted) {
    const std::lock_guard lock(wanted.mutex);
    if (wanted.resolved) return;
    if (wanted.how.scheme == Scheme::kBlockScales && wanted.left > 0) {
      const TensorStorageMetadata& scales = stored_.tensor(wanted.how.scales);
      wanted.scales = Tensor::empty(DType::kFloat32, scales.size);
      stored_.read(wanted.how.scales, Box::whole(scales.size), wanted.scales.view());
    }
    wanted.to = planner_.resolve_tensor(*wanted.item);
    if (wanted.to.shape != wanted.item->lengths) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the planner gives a destination of shape {} for {}",
                              to_string(wanted.to.shape), to_string(wanted.item->lengths)));
    }
    wanted.resolved = true;
  }

  void finish(Wanted& wanted) {
    resolve(wanted);
    planner_.commit_tensor(*wanted.item, wanted.to);
  }

  void read(const Tile& tile, DeviceSenders& senders) {
    Wanted& wanted = *tile.wanted;
    resolve(wanted);
    Box here = tile.box;
    for (std::size_t d = 0; d < here.rank(); ++d) here.offsets[d] -= wanted.item->storage_offsets[d];
    const TensorView to = wanted.to.narrow(here);
    const bool direct = to.device.is_cpu() && to.dtype == from_.dequantize.to && to.is_contiguous();
    Tensor made;
    if (!direct) made = Tensor::empty(from_.dequantize.to, to.shape);
    dequantize(wanted, tile.box, direct ? to : made.view());
    if (!to.device.is_cpu()) {
      senders.to(to.device).send_copy(made.view(), to);
      senders.wait();
    } else if (!direct) {
      copy(made.view(), to);
    }
    if (--wanted.left == 0) planner_.commit_tensor(*wanted.item, wanted.to);
  }

  void dequantize(const Wanted& wanted, const Box& box, const TensorView& to) {
    if (wanted.how.scheme == Scheme::kMxfp4) return expand(wanted, box, to);
    const TensorStorageMetadata& tensor = stored_.tensor(wanted.position);
    const Tensor elements = Tensor::empty(tensor.properties.dtype, box.sizes);
    stored_.read_chunk(wanted.position, wanted.chunk, box, elements.view());
    needed_ += elements.view().bytes();
    const Shape& offsets = tensor.chunks[wanted.chunk].offsets;
    dequantize_blocks(elements.view(), offsets[0] + box.offsets[0], offsets[1] + box.offsets[1],
                      from_.dequantize.block, wanted.scales.view(), to);
  }

  // Whole groups are read: the first and the last of a row may be wanted in part only.
  void expand(const Wanted& wanted, const Box& box, const TensorView& to) {
    const TensorStorageMetadata& tensor = stored_.tensor(wanted.position);
    const Box& chunk = tensor.chunks[wanted.chunk];
    const std::size_t last = box.rank() - 1;
    const std::int64_t group_bytes = tensor.size[last + 1], per_group = 2 * group_bytes;
    const std::int64_t begin = box.offsets[last] / per_group;
    const std::int64_t end = (box.offsets[last] + box.sizes[last] + per_group - 1) / per_group;
    Box codes{Shape(chunk.rank(), 0), Shape(chunk.rank(), 0)}, groups = box;
    std::int64_t rows = 1;
    for (std::size_t d = 0; d < last; ++d) {
      codes.offsets[d] = box.offsets[d];
      codes.sizes[d] = box.sizes[d];
      groups.offsets[d] = chunk.offsets[d] + box.offsets[d];
      rows *= box.sizes[d];
    }
    codes.offsets[last] = begin;
    codes.sizes[last] = groups.sizes[last] = end - begin;
    codes.sizes[last + 1] = group_bytes;
    groups.offsets[last] = chunk.offsets[last] + begin;
    const Tensor bytes = Tensor::empty(DType::kUInt8, codes.sizes);
    const Tensor scales = Tensor::empty(DType::kUInt8, groups.sizes);
    stored_.read_chunk(wanted.position, wanted.chunk, codes, bytes.view());
    stored_.read(wanted.how.scales, groups, scales.view());
    needed_ += bytes.view().bytes() + scales.view().bytes();
    dequantize_mxfp4(
        TensorView::contiguous(bytes.view().data, DType::kUInt8, {rows, (end - begin) * group_bytes}),
        TensorView::contiguous(scales.view().data, DType::kUInt8, {rows, end - begin}),
        box.offsets[last] - begin * per_group,
        TensorView::contiguous(to.data, to.dtype, {rows, box.sizes[last]}));
  }

  const QuantizedSource& from_;
  StoredTensors stored_;
  LoadPlanner& planner_;
  LazyDriver devices_;
  std::vector<std::unique_ptr<Wanted>> wanted_;
  std::vector<Tile> tiles_;
  std::atomic<std::uint64_t> needed_ = 0;
};

}  // namespace

void read_quantized(const QuantizedSource& from, const std::vector<const ReadItem*>& items,
                    LoadPlanner& planner, const ReadOptions& options, ReadReport& report) {
  QuantizedReads reads(from, planner, options);
  for (const ReadItem* item : items) reads.add(*item);
  try {
    reads.run(threads_for(options, from.files));
  } catch (...) {
    reads.fill(report);
    throw;
  }
  reads.fill(report);
}

}  // namespace cairn
