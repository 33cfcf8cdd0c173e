#include "reading/item_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "reading/read_to_device.h"
#include "reading/stored_item.h"
#include "reading/torch_elements.h"
#include "tensor/selection.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLargeInMemory = 1 << 20;        // smaller items are not worth asking for memory
constexpr std::uint64_t kLeastCache = 8;                 // blocks
constexpr std::uint64_t kFarBlock = 4 * kManifestBlock;  // each takes a request

void check_crc(ByteSpan storage, std::uint32_t expected, std::uint64_t offset) {
  const std::uint32_t crc = crc32(storage);
  if (crc == expected) return;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("the elements' CRC-32 is {:08x}, the archive says {:08x}", crc, expected))
      .at(offset);
}

bool is_on_device(const TensorView& view) { return !view.device.is_cpu(); }

// A stored tensor whose storage is in memory. TorchFile has seen that all its elements lie in there.
TensorView view_of(const TorchFile::Stored& stored, ByteSpan storage) {
  TensorView view;
  // Nobody writes through it.
  view.data = const_cast<std::byte*>(storage.data()) + stored.first_element * item_size(stored.tensor.dtype);
  view.dtype = stored.tensor.dtype;
  view.shape = stored.tensor.shape;
  view.strides = stored.tensor.strides;
  return view;
}

}  // namespace

// A large tensor whose parts are read by several threads.
struct ItemReader::LargeRead {
  std::mutex mutex;
  bool open = false;
  std::unique_ptr<TorchFile> file;         // one of these has the elements
  std::shared_ptr<const ByteSource> bare;  // the other is null
  StoredElements elements;
  std::optional<std::uint32_t> crc;  // to be compared with that of all parts
  TensorView to;
  std::size_t axis = 0;  // along which it is cut: the one with the longest stride
  std::atomic<std::uint32_t> left = 0;
  std::vector<ReadRun> runs;
  bool is_taken_over = false;  // by the planner, all of it
};

ItemReader::ItemReader(ReadWork& work, LoadPlanner& planner, const FileSystem& files,
                       const ReadOptions& options)
    : work_(work),
      planner_(planner),
      files_(files),
      options_(options),
      devices_(options.devices),
      cache_(kManifestBlock, std::max(options.memory_budget / 4, kLeastCache * kManifestBlock)),
      far_cache_(kFarBlock, std::max(options.memory_budget / 4, kLeastCache * kFarBlock)),
      memory_(options.memory_budget / 4),
      open_(std::make_unique<OpenFile[]>(work.files.size())),
      large_(std::make_unique<std::unique_ptr<LargeRead>[]>(work.large_items)),
      written_(std::make_unique<std::atomic<bool>[]>(work.items.size())) {
  for (std::size_t i = 0; i < work.files.size(); ++i) open_[i].units = work.files[i].units;
  for (const ReadUnit& unit : work.units) {
    if (unit.parts == 0 || unit.part != 0) continue;
    large_[unit.large] = std::make_unique<LargeRead>();
    large_[unit.large]->left = unit.parts;
  }
}

ItemReader::~ItemReader() = default;

void ItemReader::fill(ReadReport& report) const {
  report.needed += work_.needed;
  const std::uint64_t read = tally_.read;
  const std::uint64_t verified = std::min<std::uint64_t>(tally_.verified, read);
  report.read += read;
  report.verified += verified;
  report.unverified += read - verified;
  for (std::size_t i = 0; i < work_.items.size(); ++i) {
    if (written_[i]) report.written.push_back(work_.items[i].item->dest_index.fqn);
  }
  std::sort(report.written.begin(), report.written.end());
  report.written.erase(std::unique(report.written.begin(), report.written.end()), report.written.end());
}

void ItemReader::run(const ReadUnit& unit, Scratch& scratch) {
  if (unit.parts == 0) {
    run_small(unit, scratch);
  } else {
    run_large(unit, scratch);
  }
  finish_unit(work_.items[unit.first].file);
}

const ItemReader::OpenFile& ItemReader::opened(std::uint32_t file) {
  OpenFile& open = open_[file];
  const std::lock_guard lock(open.mutex);
  if (open.source == nullptr) {
    const FileWork& work = work_.files[file];
    std::shared_ptr<const ByteSource> source = files_.open(work.name);
    if (source->size() != work.size) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("the file has {} bytes now and had {} a moment ago", source->size(), work.size))
          .in_file(source->name());
    }
    open.source = std::make_shared<PlannedSource>(source, work.plan, cache_, tally_);
    open.of_small = source->is_far() ? std::make_shared<PlannedSource>(source, work.plan, far_cache_, tally_)
                                     : open.source;
  }
  return open;
}

// A file is closed when the last of its units is done.
void ItemReader::finish_unit(std::uint32_t file) {
  if (--open_[file].units != 0) return;
  const std::lock_guard lock(open_[file].mutex);
  open_[file].source.reset();
  open_[file].of_small.reset();
}

Error ItemReader::told(const Error& e, const WantedItem& wanted) const {
  const std::string file = files_.root() + "/" + work_.files[wanted.file].name;
  // A place in what a transform made is no place in the file: the item's own is.
  Error placeless(e.code(), e.message());
  placeless.in_file(e.file()).of_tensor(e.tensor()).while_doing(e.doing()).with_errno(e.os_error());
  placeless.with_cause(e.cause());
  Error moved = from_start_of_file(wanted.transformed() ? placeless : e, wanted.offset, file);
  moved.of_tensor(wanted.item->storage_index.fqn);
  return moved;
}

// Whether all blocks of the item are checked against the manifest as they are read.
bool ItemReader::is_checked(const WantedItem& wanted) const {
  const PlannedFile& plan = work_.files[wanted.file].plan;
  if (plan.crcs == nullptr) return false;
  const std::uint64_t first = wanted.offset / kManifestBlock;
  const std::uint64_t last = (wanted.offset + std::max<std::uint64_t>(wanted.length, 1) - 1) / kManifestBlock;
  const auto begin = std::lower_bound(plan.whole_blocks.begin(), plan.whole_blocks.end(), first);
  const auto end = std::upper_bound(begin, plan.whole_blocks.end(), last);
  return static_cast<std::uint64_t>(end - begin) == last - first + 1;
}

TensorView ItemReader::destination(std::size_t at) {
  const ReadItem& item = *work_.items[at].item;
  TensorView view = planner_.resolve_tensor(item);
  if (view.shape != item.lengths) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the planner gives a destination of shape {} for {}",
                                                         to_string(view.shape), to_string(item.lengths)));
  }
  return view;
}

void ItemReader::run_small(const ReadUnit& unit, Scratch& scratch) {
  const std::shared_ptr<const PlannedSource> source = opened(work_.items[unit.first].file).of_small;
  for (std::size_t i = unit.first; i < unit.first + unit.count; ++i) {
    if (stopped()) throw Error(ErrorCode::kCancelled, "the load has failed elsewhere");
    read_small(i, *source, scratch);
    done_ += work_.items[i].needed;
  }
  commit_sent(scratch);
}

void ItemReader::commit_sent(Scratch& scratch) {
  if (scratch.sent.empty()) return;
  scratch.senders.wait();
  for (const auto& [at, to] : scratch.sent) planner_.commit_tensor(*work_.items[at].item, to);
  scratch.sent.clear();
}

void ItemReader::read_small(std::size_t at, const PlannedSource& source, Scratch& scratch) {
  const WantedItem& wanted = work_.items[at];
  if (wanted.tensor != nullptr && wanted.needed == 0) {
    return planner_.commit_tensor(*wanted.item, destination(at));
  }
  if (is_too_large(wanted) && read_streamed(at, scratch)) return;
  std::optional<MemoryBudget::Claim> claim;
  if (const std::uint64_t memory = memory_for(wanted); memory > kLargeInMemory)
    claim.emplace(memory_, memory);
  scratch.bytes.clear();
  try {
    source.read_at(wanted.offset, {scratch.bytes.extend(wanted.length), wanted.length});
  } catch (Error& e) {
    e.of_tensor(wanted.item->storage_index.fqn);
    throw;
  }
  try {
    const ByteSpan item(scratch.bytes.data(), scratch.bytes.size());
    if (wanted.transformed()) {
      read_transformed(at, source.name(), scratch);
    } else if (wanted.tensor != nullptr) {
      read_tensor(at, item, source.name(), scratch);
    } else {
      read_object(at, item, source.name());
    }
  } catch (const Error& e) {
    throw told(e, wanted);
  }
  if (wanted.length > kLargeInMemory) scratch.bytes = {};
}

void ItemReader::read_tensor(std::size_t at, ByteSpan item, const std::string& name, Scratch& scratch) {
  const WantedItem& wanted = work_.items[at];
  if (wanted.bare) {
    // Nobody writes through it.
    return deliver(at,
                   TensorView::contiguous(const_cast<std::byte*>(item.data()),
                                          wanted.tensor->properties.dtype, wanted.chunk->sizes),
                   scratch);
  }
  const TorchFile::Stored* stored = scratch.known.find(item);
  std::unique_ptr<TorchFile> file;
  if (stored == nullptr) {
    try {
      file = open_item_archive(memory_source(item, name), options_.limits);
      stored = &chunk_in(*file, *wanted.chunk);
    } catch (const Error& e) {
      if (!is_taken_over(e, at, item)) throw;
      return;
    }
    scratch.known.remember(item, *file);
  }
  check_shape(stored->tensor.shape, *wanted.chunk);
  const ByteSpan storage = item.subspan(stored->data_offset, stored->storage_bytes);
  if (options_.verify != Verify::kNone && stored->crc != 0 && !is_checked(wanted)) {
    check_crc(storage, stored->crc, stored->data_offset);
    if (!wanted.transformed()) tally_.verified += storage.size();
  }
  deliver(at, view_of(*stored, storage), scratch);
}

// Whether the planner knows what to do with an archive that we do not understand.
bool ItemReader::is_taken_over(const Error& e, std::size_t at, ByteSpan archive) {
  if (e.code() != ErrorCode::kUnsupported || !planner_.load_archive(*work_.items[at].item, as_text(archive)))
    return false;
  written_[at] = true;
  return true;
}

// The wanted part of a chunk that is in memory goes where it belongs.
void ItemReader::deliver(std::size_t at, const TensorView& chunk, Scratch& scratch) {
  const WantedItem& wanted = work_.items[at];
  const TensorView to = destination(at);
  written_[at] = true;
  const TensorView from = chunk.narrow({wanted.item->storage_offsets, wanted.item->lengths});
  if (is_on_device(to)) {
    scratch.senders.to(to.device).send_copy(from, to);
    scratch.sent.emplace_back(at, to);
    return;
  }
  copy(from, to);
  planner_.commit_tensor(*wanted.item, to);
}

void ItemReader::read_object(std::size_t at, ByteSpan item, const std::string& name) {
  const WantedItem& wanted = work_.items[at];
  if (std::string* raw = planner_.resolve_bytes(*wanted.item)) {
    *raw = as_text(item);
    written_[at] = true;
    return;
  }
  std::uint64_t checked = 0;  // by the archive's own checksums
  Value value = load_object(memory_source(item, name), options_.limits, &checked);
  if (options_.verify != Verify::kNone && !wanted.transformed() && !is_checked(wanted))
    tally_.verified += checked;
  written_[at] = true;
  planner_.load_bytes(*wanted.item, std::move(value));
}

void ItemReader::run_large(const ReadUnit& unit, Scratch& scratch) {
  const WantedItem& wanted = work_.items[unit.first];
  LargeRead& large = *large_[unit.large];
  try {
    if (wanted.needed > 0) {
      open_large(large, unit.first);
    }
    if (wanted.needed > 0 && !large.is_taken_over) {
      Selection selection = selection_of({wanted.item->storage_offsets, wanted.item->lengths});
      TensorView to = large.to;
      if (unit.parts > 1) {
        const std::int64_t count = wanted.item->lengths[large.axis];
        const auto cut = [&](std::uint32_t part) {
          return count / unit.parts * part + count % unit.parts * part / unit.parts;
        };
        const std::int64_t begin = cut(unit.part), end = cut(unit.part + 1);
        selection[large.axis].start += begin;
        selection[large.axis].count = end - begin;
        Box box = Box::whole(to.shape);
        box.offsets[large.axis] = begin;
        box.sizes[large.axis] = end - begin;
        to = to.narrow(box);
      }
      if (to.numel() > 0) {
        written_[unit.first] = true;
        read_part(large, unit.first, selection, to, scratch);
      }
    } else if (wanted.needed == 0 && unit.part == 0) {
      large.to = destination(unit.first);
    }
    done_ += wanted.needed / unit.parts;
    if (--large.left == 0) finish_large(large, unit.first);
  } catch (const Error& e) {
    throw told(e, wanted);
  }
}

void ItemReader::read_part(LargeRead& large, std::size_t at, const Selection& selection, const TensorView& to,
                           Scratch& scratch) {
  const auto note = [&](const ReadRun& run) {
    const std::lock_guard lock(large.mutex);
    large.runs.push_back(run);
  };
  if (is_on_device(to)) {
    read_to_device(large.elements, selection, to, work_.items[at].offset, large.crc.has_value(),
                   scratch.senders.to(to.device), note);
    return scratch.senders.wait();
  }
  ReadRun run;
  read_box(large.elements, selection, to, large.crc ? &run : nullptr);
  note(run);
}

void ItemReader::open_large(LargeRead& large, std::size_t at) {
  const WantedItem& wanted = work_.items[at];
  const std::lock_guard lock(large.mutex);
  if (large.open) return;
  std::shared_ptr<const ByteSource> item = slice_of(opened(wanted.file).source, wanted.offset, wanted.length);
  if (wanted.bare) {
    large.bare = std::move(item);
    large.elements = {large.bare.get(),
                      0,
                      wanted.length,
                      0,
                      wanted.tensor->properties.dtype,
                      wanted.chunk->sizes,
                      contiguous_strides(wanted.chunk->sizes),
                      std::nullopt};
  } else {
    try {
      large.file = open_item_archive(item, options_.limits);
      large.elements = elements_of(*large.file, chunk_in(*large.file, *wanted.chunk));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kUnsupported || !is_taken_over(e, at, as_bytes(read_all(*item)))) throw;
      large.open = large.is_taken_over = true;
      return;
    }
  }
  const bool whole = wanted.item->lengths == wanted.chunk->sizes;
  if (options_.verify != Verify::kNone && whole && !is_checked(wanted)) large.crc = large.elements.crc;
  large.elements.crc.reset();
  large.to = destination(at);
  const Shape& strides = large.elements.strides;
  for (std::size_t d = 0; d < strides.rank(); ++d) {
    const bool longer = strides[d] > strides[large.axis];
    if (wanted.item->lengths[d] > 1 && (wanted.item->lengths[large.axis] <= 1 || longer)) large.axis = d;
  }
  large.open = true;
}

// All parts have arrived. When they make up the whole storage, it is known whether they are right.
void ItemReader::finish_large(LargeRead& large, std::size_t at) {
  if (large.is_taken_over) return large.file.reset();
  std::sort(large.runs.begin(), large.runs.end(),
            [](const ReadRun& a, const ReadRun& b) { return a.begin < b.begin; });
  std::uint64_t end = 0;
  std::uint32_t crc = 0;
  bool whole = large.crc.has_value();
  for (const ReadRun& run : large.runs) {
    whole = whole && run.unbroken && run.begin == end;
    if (!whole) break;
    crc = crc32_combine(crc, run.crc, run.end - run.begin);
    end = run.end;
  }
  if (whole && end == large.elements.storage_bytes) {
    if (crc != *large.crc) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("the elements' CRC-32 is {:08x}, the archive says {:08x}", crc, *large.crc))
          .at(large.elements.storage_offset);
    }
    tally_.verified += end;
  }
  planner_.commit_tensor(*work_.items[at].item, large.to);
  large.file.reset();
  large.bare.reset();
}

}  // namespace cairn
