// Items of a checkpoint without a manifest: each is a torch.save archive, whose records have CRCs.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/source.h"
#include "format/torch_file.h"
#include "reading/memory_budget.h"
#include "reading/stored_item.h"
#include "reading/transforms.h"
#include "upkeep/verify_steps.h"

namespace cairn {
namespace {

constexpr std::string_view kNoCrc = "written without checksums";
constexpr std::string_view kOverlapping = "items that overlap others";
constexpr std::string_view kTooLarge = "compressed items that do not fit into the memory budget";

// One item, and what the description says it is.
struct Item {
  std::uint32_t row = 0;
  const TensorStorageMetadata* tensor = nullptr;  // null: an object
  const Box* chunk = nullptr;
};

std::vector<Item> items_of(const Metadata& metadata) {
  std::vector<Item> items;
  const auto add = [&](const std::string& name, const Shape* offset, Item item) {
    try {
      const auto row = metadata.storage_data.find(name, offset);
      if (!row) return;
      item.row = static_cast<std::uint32_t>(*row);
      items.push_back(item);
    } catch (const Error&) {
      // Two places: check_places has found that.
    }
  };
  for (const auto& [name, entry] : metadata.state_dict_metadata) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
    if (tensor == nullptr) add(name, nullptr, {});
    if (tensor != nullptr)
      for (const Box& chunk : tensor->chunks) add(name, &chunk.offsets, {0, tensor, &chunk});
  }
  return items;
}

class ArchiveCheck {
 public:
  ArchiveCheck(const FileSystem& files, const StorageData& storage, Findings& findings)
      : files_(files), storage_(storage), findings_(findings), budget_(findings.options().memory_budget) {}

  void run(std::vector<Item> items) {
    std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) { return key(a) < key(b); });
    for (const Item& item : items) findings_.expect(length(item));
    check_files();
    const std::vector<bool> overlaps = overlapping(items);
    for_each_in_parallel(items.size(), findings_.threads(), [&](std::size_t i, int) {
      overlaps[i] ? findings_.add_unchecked(kOverlapping, length(items[i])) : check(items[i]);
      findings_.pass(length(items[i]));
    });
  }

 private:
  // Items that begin inside one before them, in order. check_places has found that; were they read, a small
  // file could be read a million times.
  std::vector<bool> overlapping(const std::vector<Item>& items) const {
    std::vector<bool> overlaps(items.size());
    std::pair<std::uint32_t, std::int64_t> end;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto [file, offset] = key(items[i]);
      overlaps[i] = file == end.first && offset < end.second;
      std::int64_t behind = 0;
      if (overlaps[i] || __builtin_add_overflow(offset, storage_.length(items[i].row), &behind)) continue;
      end = {file, behind};
    }
    return overlaps;
  }

  std::pair<std::uint32_t, std::int64_t> key(const Item& item) const {
    return {storage_.file_id(item.row), storage_.offset(item.row)};
  }
  std::uint64_t length(const Item& item) const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, storage_.length(item.row)));
  }
  const std::string& file_of(const Item& item) const { return storage_.files()[storage_.file_id(item.row)]; }

  // Each file once; what is missing is told once, and not again for each of its items.
  void check_files() {
    sizes_.resize(storage_.files().size());
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const std::string& name = storage_.files()[i];
      try {
        sizes_[i] = files_.open(name)->size();
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kNotFound) {
          findings_.add_unreadable(name, e);
        } else {
          findings_.add({ProblemKind::kMissing, name, "", std::nullopt, "missing"});
        }
      }
    }
  }

  void check(const Item& item) {
    const std::optional<std::uint64_t> size = sizes_[storage_.file_id(item.row)];
    const std::int64_t offset = storage_.offset(item.row);
    if (!size || offset < 0 || storage_.length(item.row) < 0) return;  // found already
    const auto begin = static_cast<std::uint64_t>(offset);
    if (begin > *size || length(item) > *size - begin) {
      return find(item, ProblemKind::kShort,
                  fmt::format("{} bytes from here on are needed, the file has {}", length(item), *size));
    }
    try {
      check_archive(item, slice_of(files_.open(file_of(item)), begin, length(item)));
    } catch (const Error& e) {
      found_by(item, e);
    }
  }

  void check_archive(const Item& item, std::shared_ptr<const ByteSource> stored) {
    const auto& transforms = storage_.transforms(item.row);
    if (transforms.empty()) return check_records(item, std::move(stored));
    const std::uint64_t most = item.tensor != nullptr
                                   ? most_tensor_bytes(*item.chunk, item.tensor->properties.dtype)
                                   : most_object_bytes(length(item), findings_.options().limits);
    // An object says nowhere how large it is.
    const std::uint64_t budget = findings_.options().memory_budget;
    if (item.tensor != nullptr && most > budget) return findings_.add_unchecked(kTooLarge, length(item));
    const std::uint64_t allowed = std::min(most, budget);
    const MemoryBudget::Claim claim(budget_, allowed);
    check_records(item, undo_transforms(std::move(stored), transforms, allowed));
  }

  void check_records(const Item& item, std::shared_ptr<const ByteSource> bytes) {
    const bool is_tensor = item.tensor != nullptr;
    const Limits& given = findings_.options().limits;
    const Limits limits = is_tensor ? given : limits_of_objects(given);
    const std::uint64_t entries = is_tensor ? limits.blob_zip_entries : limits.zip_entries;
    const ZipReader zip(bytes, {entries}, limits);
    bool summed = true, intact = true;
    for (const ZipEntry& entry : zip.entries()) {
      try {
        summed = zip.verify(entry) && summed;
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kCorrupt) throw;
        found_by(item, e, ProblemKind::kFlipped);
        intact = false;
      }
    }
    summed ? findings_.add_checked(length(item)) : findings_.add_unchecked(kNoCrc, length(item));
    if (!intact) return;
    const std::uint64_t pickle =
        is_tensor ? limits.blob_pickle_bytes : std::max(limits.torch_pickle_bytes, limits.object_bytes);
    try {
      check_contents(item, *TorchFile::open(std::move(bytes), {pickle, entries}, limits));
    } catch (const Error& e) {
      // An object may be of any class; its bytes are right, and that is all that can be said.
      if (is_tensor || e.code() != ErrorCode::kUnsupported) throw;
    }
  }

  void check_contents(const Item& item, const TorchFile& file) {
    if (item.tensor == nullptr) return;
    const auto* tensor = file.root().get_if<StoredTensor>();
    const DType dtype = item.tensor->properties.dtype;
    if (tensor == nullptr) {
      find(item, ProblemKind::kMismatched, "the stored item is no tensor");
    } else if (tensor->shape != item.chunk->sizes || tensor->dtype != dtype) {
      find(item, ProblemKind::kMismatched,
           fmt::format("the stored item is {} {}, the description says {} {}", name_of(tensor->dtype),
                       to_string(tensor->shape), name_of(dtype), to_string(item.chunk->sizes)));
    }
  }

  void found_by(const Item& item, const Error& e, ProblemKind kind = ProblemKind::kUnreadable) {
    const bool transformed = !storage_.transforms(item.row).empty();
    const auto begin = static_cast<std::uint64_t>(storage_.offset(item.row));
    Error moved(e.code(), e.message());
    moved.at(begin + (transformed ? 0 : e.offset().value_or(0))).with_errno(e.os_error());
    findings_.add_unreadable(file_of(item), moved, std::string(storage_.fqn(item.row)), kind);
  }

  void find(const Item& item, ProblemKind kind, std::string text) {
    findings_.add({kind, file_of(item), std::string(storage_.fqn(item.row)),
                   static_cast<std::uint64_t>(storage_.offset(item.row)), std::move(text)});
  }

  const FileSystem& files_;
  const StorageData& storage_;
  Findings& findings_;
  MemoryBudget budget_;
  std::vector<std::optional<std::uint64_t>> sizes_;  // by file id; nullopt: cannot be opened
};

}  // namespace

void check_archives(const FileSystem& files, const DcpPart& part, Findings& findings) {
  ArchiveCheck(files, part.metadata->storage_data, findings).run(items_of(*part.metadata));
  findings.add_unchecked("the description: no manifest has its checksum", part.metadata_bytes);
}

}  // namespace cairn
