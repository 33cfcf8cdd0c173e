#include "reading/read_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/checked.h"
#include "reading/read_box.h"
#include "reading/stored_item.h"
#include "reading/whole_blocks.h"

namespace cairn {
namespace {

constexpr std::uint64_t kSmallItem = 64 << 10;  // read into memory as a whole
constexpr std::uint64_t kUnitBytes = 8 << 20;   // of small items
constexpr std::uint64_t kLeastUnitBytes = 256 << 10;
constexpr std::uint64_t kPartBytes = 16 << 20;  // of a large item
constexpr std::uint64_t kArchiveEnd = 4 << 10;  // what is read of a large archive's head, and of its tail
constexpr std::uint64_t kSparse = 2;  // stretches of which less than 1 / kSparse is wanted are read exactly

Error corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

// From the first wanted element of a row-major tensor to the last, in bytes.
std::pair<std::uint64_t, std::uint64_t> extent_of(const ReadItem& item, const Shape& shape, DType dtype) {
  std::uint64_t first = 0, last = 0, stride = item_size(dtype);
  for (std::size_t d = shape.rank(); d-- > 0;) {
    first += static_cast<std::uint64_t>(item.storage_offsets[d]) * stride;
    last += static_cast<std::uint64_t>(item.storage_offsets[d] + item.lengths[d] - 1) * stride;
    stride *= static_cast<std::uint64_t>(shape[d]);
  }
  return {first, last + item_size(dtype)};
}

// Whether no gap between the wanted runs of a row-major chunk is too wide to be read over (read_box.h).
bool lie_close(const Shape& lengths, const Shape& sizes, std::uint64_t item) {
  std::uint64_t inner = item;  // bytes of one step of the dimension
  for (std::size_t d = sizes.rank(); d-- > 0;) {
    const bool repeats = std::any_of(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(d),
                                     [](std::int64_t n) { return n > 1; });
    const auto unwanted = static_cast<std::uint64_t>(sizes[d] - lengths[d]);
    if (repeats && unwanted > kSmallGap / inner) return false;
    inner = saturating_mul(inner, static_cast<std::uint64_t>(sizes[d]));
    if (inner > kSmallGap * kSmallGap) inner = kSmallGap * kSmallGap;
  }
  return true;
}

class Planning {
 public:
  Planning(const CheckpointView& checkpoint, Verify verify, int threads)
      : checkpoint_(checkpoint),
        storage_(checkpoint.metadata.storage_data),
        verify_(verify),
        threads_(threads) {}

  ReadWork run(const LoadPlan& plan) {
    work_.items.reserve(plan.items.size());
    for (const ReadItem& item : plan.items) {
      try {
        work_.items.push_back(find(item));
        work_.needed = checked_add(work_.needed, work_.items.back().needed);
      } catch (Error& e) {
        e.of_tensor(item.storage_index.fqn);
        throw;
      }
    }
    std::stable_sort(work_.items.begin(), work_.items.end(), [](const WantedItem& a, const WantedItem& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
    choose_blocks();
    cut_into_units();
    return std::move(work_);
  }

 private:
  WantedItem find(const ReadItem& item) {
    WantedItem wanted;
    wanted.item = &item;
    const MetadataIndex& index = item.storage_index;
    if (item.type == LoadItemType::kTensor) find_chunk(item, wanted);
    const std::size_t entry = find_entry(index);
    const std::int64_t offset = storage_.offset(entry), length = storage_.length(entry);
    wanted.file = file_of(entry);
    const FileWork& file = work_.files[wanted.file];
    if (offset < 0 || length < 0 || static_cast<std::uint64_t>(offset) > file.size ||
        static_cast<std::uint64_t>(length) > file.size - static_cast<std::uint64_t>(offset)) {
      throw corrupt(fmt::format("the metadata says {} bytes from byte {} on, but the file has {}: it is cut "
                                "off, or it belongs to another save",
                                length, offset, file.size))
          .in_file(shown(file.name));
    }
    wanted.offset = static_cast<std::uint64_t>(offset);
    wanted.length = static_cast<std::uint64_t>(length);
    wanted.transforms = &storage_.transforms(entry);
    wanted.by_caller = checkpoint_.transform != nullptr && checkpoint_.transform->decodes(*wanted.transforms);
    wanted.in_memory = wanted.tensor == nullptr || wanted.transformed() || wanted.length <= kSmallItem;
    if (checkpoint_.bare) settle_bare(item, wanted);
    if (wanted.tensor == nullptr || wanted.transformed()) wanted.needed = wanted.length;
    return wanted;
  }

  // Of a bare item any part can be read without the rest.
  static void settle_bare(const ReadItem& item, WantedItem& wanted) {
    wanted.bare = true;
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(wanted.chunk->volume()) * item_size(wanted.tensor->properties.dtype);
    if (bytes != wanted.length)
      throw corrupt(fmt::format("a chunk of {} bytes takes {} in the file", bytes, wanted.length));
    wanted.in_memory = wanted.in_memory && item.lengths == wanted.chunk->sizes;
  }

  void find_chunk(const ReadItem& item, WantedItem& wanted) const {
    const auto position = checkpoint_.names.find(item.storage_index.fqn);
    if (position) {
      const StorageMetadata& stored = checkpoint_.metadata.state_dict_metadata[*position].second;
      wanted.tensor = std::get_if<TensorStorageMetadata>(&stored);
    }
    if (wanted.tensor == nullptr) throw Error(ErrorCode::kNotFound, "the checkpoint has no such tensor");
    const std::vector<Box>& chunks = wanted.tensor->chunks;
    if (!item.storage_index.offset)
      throw Error(ErrorCode::kInvalidArgument, "a tensor's item names no chunk");
    const Shape& offset = *item.storage_index.offset;
    const auto hint = static_cast<std::uint64_t>(item.storage_index.index.value_or(-1));
    auto chunk = chunks.begin() + static_cast<std::ptrdiff_t>(hint < chunks.size() ? hint : 0);
    if (chunk == chunks.end() || chunk->offsets != offset) {
      chunk =
          std::find_if(chunks.begin(), chunks.end(), [&](const Box& box) { return box.offsets == offset; });
    }
    if (chunk == chunks.end())
      throw Error(ErrorCode::kNotFound, fmt::format("the checkpoint has no chunk at {}", to_string(offset)));
    const Box part{item.storage_offsets, item.lengths};
    if (part.offsets.rank() != chunk->rank() || part.rank() != chunk->rank() ||
        !Box::whole(chunk->sizes).contains(part)) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("the part {} is wanted of a chunk of shape {}",
                                                           to_string(part), to_string(chunk->sizes)));
    }
    wanted.chunk = &*chunk;
    const std::uint64_t item_bytes = item_size(wanted.tensor->properties.dtype);
    (void)checked_mul(static_cast<std::uint64_t>(chunk->volume()), item_bytes);
    wanted.needed = static_cast<std::uint64_t>(item.lengths.numel()) * item_bytes;
  }

  std::size_t find_entry(const MetadataIndex& index) const {
    const auto entry = storage_.find(index.fqn, index.offset ? &*index.offset : nullptr);
    if (entry) return *entry;
    if (!checkpoint_.metadata.foreign_storage_data.is<None>()) {
      throw Error(ErrorCode::kUnsupported,
                  "the checkpoint was written by a storage of somebody's own; its metadata names no files");
    }
    if (!index.offset && !checkpoint_.names.find(index.fqn)) {
      throw Error(ErrorCode::kNotFound, "the checkpoint has no such object");
    }
    throw corrupt(index.offset ? fmt::format("the metadata does not say where the chunk at {} is",
                                             to_string(*index.offset))
                               : "the metadata does not say where the object is");
  }

  std::string shown(const std::string& file) const { return checkpoint_.files.root() + "/" + file; }

  // The file's number in the work; looked at when it is first met.
  std::uint32_t file_of(std::size_t entry) {
    const auto [known, fresh] =
        numbers_.emplace(storage_.file_id(entry), static_cast<std::uint32_t>(work_.files.size()));
    if (!fresh) return known->second;
    FileWork file;
    file.name = storage_.files()[storage_.file_id(entry)];
    file.plan.id = known->second;
    file.size = size_of(file.name);
    const ManifestFile* sums = verify_ == Verify::kNone ? nullptr : checkpoint_.sums(file.name);
    if (sums != nullptr && sums->size != file.size) {
      throw corrupt(fmt::format("the file has {} bytes, the manifest says {}", file.size, sums->size))
          .in_file(shown(file.name));
    }
    if (sums != nullptr) file.plan.crcs = &sums->block_crcs;
    work_.files.push_back(std::move(file));
    return known->second;
  }

  std::uint64_t size_of(const std::string& name) const {
    // Only the name of a file beside the metadata can be asked for without opening it.
    if (name.find('/') != name.npos || name == "." || name == ".." || name.empty())
      return checkpoint_.files.open(name)->size();
    if (const auto entry = checkpoint_.files.stat(name)) return entry->size;
    throw Error(ErrorCode::kNotFound, "a data file of the checkpoint is missing").in_file(shown(name));
  }

  void choose_blocks() {
    WholeBlocks blocks(work_.files.size());
    std::vector<std::uint64_t> sizes;
    for (const FileWork& file : work_.files) sizes.push_back(file.size);
    for (const WantedItem& wanted : work_.items) {
      try {
        add(wanted, blocks);
      } catch (Error& e) {
        e.of_tensor(wanted.item->storage_index.fqn).in_file(shown(work_.files[wanted.file].name));
        throw;
      }
    }
    blocks.choose(sizes, work_.needed, verify_ == Verify::kFull);
    for (std::size_t i = 0; i < work_.files.size(); ++i) work_.files[i].plan.whole_blocks = blocks.take(i);
  }

  // Strides of a large item are not known yet; rows in order are nearly always right, and when they are not
  // only more or less is read than it could be.
  void add(const WantedItem& wanted, WholeBlocks& blocks) const {
    const std::uint64_t begin = wanted.offset, end = wanted.offset + wanted.length;
    if (wanted.bare || (wanted.needed == 0 && wanted.tensor != nullptr)) return;
    if (wanted.in_memory || wanted.item->lengths == wanted.chunk->sizes)
      return blocks.add(wanted.file, begin, end, end - begin);
    const DType dtype = wanted.tensor->properties.dtype;
    const std::uint64_t elements = static_cast<std::uint64_t>(wanted.chunk->volume()) * item_size(dtype);
    if (elements > wanted.length)  // elements that lie on top of each other, or a lie
      return blocks.add(wanted.file, begin, end, std::min(wanted.needed, wanted.length));
    blocks.add(wanted.file, begin, begin + kArchiveEnd, kArchiveEnd);
    const auto [first, last] = extent_of(*wanted.item, wanted.chunk->sizes, dtype);
    const std::uint64_t around = wanted.length - elements;
    const bool closely = lie_close(wanted.item->lengths, wanted.chunk->sizes, item_size(dtype));
    const std::uint64_t read = closely ? last - first : wanted.needed;
    const bool sparse = read < (last - first) / kSparse;
    if (verify_ == Verify::kFull || !sparse) {
      blocks.add(wanted.file, begin + first, begin + last + around, read + around);
    }
    blocks.add(wanted.file, end - kArchiveEnd, end, kArchiveEnd);
  }

  void cut_into_units() {
    const auto threads = static_cast<std::uint64_t>(threads_);
    const std::uint64_t unit = std::clamp(work_.needed / (4 * threads), kLeastUnitBytes, kUnitBytes);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < work_.items.size(); ++i) {
      const WantedItem& wanted = work_.items[i];
      if (!wanted.in_memory) {
        add_large(i);
        bytes = unit;
        continue;
      }
      const bool follows = !work_.units.empty() && work_.units.back().parts == 0 &&
                           work_.items[work_.units.back().first].file == wanted.file && bytes < unit;
      if (!follows) {
        work_.units.push_back({i, 0, 0, 0, 0});
        ++work_.files[wanted.file].units;
        bytes = 0;
      }
      ++work_.units.back().count;
      bytes += wanted.length;
    }
  }

  void add_large(std::size_t i) {
    const std::uint64_t parts = std::clamp<std::uint64_t>(work_.items[i].needed / kPartBytes, 1, 1 << 20);
    const auto large = static_cast<std::uint32_t>(work_.large_items++);
    for (std::uint32_t part = 0; part < parts; ++part)
      work_.units.push_back({i, 1, part, static_cast<std::uint32_t>(parts), large});
    work_.files[work_.items[i].file].units += parts;
  }

  const CheckpointView& checkpoint_;
  const StorageData& storage_;
  const Verify verify_;
  const int threads_;
  ReadWork work_;
  std::unordered_map<std::uint32_t, std::uint32_t> numbers_;  // file_id -> position in work_.files
};

}  // namespace

ReadWork plan_reads(const LoadPlan& plan, const CheckpointView& checkpoint, Verify verify, int threads) {
  return Planning(checkpoint, verify, threads).run(plan);
}

}  // namespace cairn
