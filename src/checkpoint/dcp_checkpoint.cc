#include "checkpoint/dcp_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/large_block.h"
#include "base/seeded_hash.h"
#include "cairn/storage.h"
#include "checkpoint/assemble.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/description.h"
#include "checkpoint/file_list.h"
#include "checkpoint/formats.h"
#include "format/dcp_metadata.h"
#include "reading/stored_item.h"
#include "reading/torch_elements.h"
#include "reading/transforms.h"

namespace cairn {
namespace {

// zstd's best: a block of 128 KiB in four bytes.
constexpr std::uint64_t kMostTransformGrowth = 32768;
constexpr std::size_t kMostOpen = 64;

OpenFiles::Wrap wrap_with(SourceChecks* checks) {
  if (checks == nullptr) return {};
  return [checks](const std::string& name, std::shared_ptr<const ByteSource> file) {
    return checks->checked(name, std::move(file));
  };
}

// A place in a file as the metadata gives it; a negative one is no place and fails when it is read.
std::uint64_t as_size(std::int64_t n) { return n < 0 ? 0 : static_cast<std::uint64_t>(n); }

std::uint64_t bytes_of(const std::string& name, const TensorStorageMetadata& tensor) {
  try {
    const auto elements = static_cast<std::uint64_t>(tensor.size.numel());
    return checked_mul<std::uint64_t>(elements, item_size(tensor.properties.dtype));
  } catch (const Error& e) {
    throw Error(e.code() == ErrorCode::kLimit ? e.code() : ErrorCode::kCorrupt, e.message()).of_tensor(name);
  }
}

}  // namespace

class DcpCheckpoint::Reader final : public ChunkReader {
 public:
  Reader(const DcpCheckpoint& checkpoint, std::string_view name, const TensorStorageMetadata& tensor)
      : checkpoint_(checkpoint), name_(name), tensor_(tensor) {}

  std::uint64_t most_bytes(std::size_t chunk) const override {
    const std::size_t entry = entry_of(chunk);
    const std::uint64_t stored = checkpoint_.stored_bytes_of(entry)->size();
    const bool transformed = !checkpoint_.metadata_.storage_data.transforms(entry).empty();
    return transformed ? saturating_mul(stored, kMostTransformGrowth) : stored;
  }

  void read(std::size_t chunk, const Selection& from, const TensorView& to) const override {
    const std::size_t entry = entry_of(chunk);
    const Box& box = tensor_.chunks[chunk];
    const auto item = checkpoint_.open_chunk(entry, box, tensor_.properties.dtype);
    try {
      const TorchFile& archive = *item->archive;
      read_checked(elements_of(archive, chunk_in(archive, box)), from, to, checkpoint_.checks_.get(),
                   item->offset_in_file);
    } catch (const Error& e) {
      if (item->transformed) throw;
      throw from_start_of_file(e, item->offset_in_file, item->file);
    }
  }

 private:
  std::size_t entry_of(std::size_t chunk) const {
    const Box& box = tensor_.chunks[chunk];
    const std::optional<std::size_t> entry = checkpoint_.metadata_.storage_data.find(name_, &box.offsets);
    if (entry) return *entry;
    if (!checkpoint_.metadata_.foreign_storage_data.is<None>()) {
      throw Error(ErrorCode::kUnsupported,
                  "the checkpoint was written by a storage of somebody's own; its metadata names no files");
    }
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the metadata does not say where chunk {} is", to_string(box)));
  }

  const DcpCheckpoint& checkpoint_;
  std::string_view name_;
  const TensorStorageMetadata& tensor_;
};

// With the manifests as checksums of the data files.
std::unique_ptr<StoredCheckpoint> open_checked_dcp(std::shared_ptr<const FileSystem> folder,
                                                   const std::vector<std::string>& metadata_files,
                                                   const Limits& limits,
                                                   std::shared_ptr<SourceChecks> checks) {
  std::vector<Metadata> parsed;
  const std::string bytes = fetch_dcp_description(folder, true, limits, &parsed);
  Description description = read_description(bytes, folder->root(), true, limits, std::move(parsed));
  if (description.has_manifest) checks->set_manifest(std::move(description.sums));
  return std::make_unique<DcpCheckpoint>(std::move(folder), std::move(description.metadata), metadata_files,
                                         limits, std::vector<std::string>(), std::move(checks));
}

std::unique_ptr<StoredCheckpoint> open_dcp(std::shared_ptr<const FileSystem> folder,
                                           const std::vector<std::string>& metadata_files,
                                           const Limits& limits, std::shared_ptr<SourceChecks> checks) {
  if (checks != nullptr)
    return open_checked_dcp(std::move(folder), metadata_files, limits, std::move(checks));
  std::vector<Metadata> parts;
  std::vector<std::string> manifests;
  for (const std::string& name : metadata_files) {
    const auto source = folder->open(name);
    try {
      parts.push_back(read_dcp_metadata(*source, limits));
      ManifestClaim claim = manifest_of(parts.back(), name);
      if (!claim.name.empty()) manifests.push_back(std::move(claim.name));
    } catch (Error& e) {
      e.in_file(source->name());
      throw;
    }
  }
  Metadata metadata = parts.size() == 1 ? std::move(parts.front()) : merge_rank_local(std::move(parts));
  return std::make_unique<DcpCheckpoint>(std::move(folder), std::move(metadata), metadata_files, limits,
                                         std::move(manifests));
}

DcpCheckpoint::DcpCheckpoint(std::shared_ptr<const FileSystem> folder, Metadata metadata,
                             std::vector<std::string> metadata_files, const Limits& limits,
                             std::vector<std::string> manifests, std::shared_ptr<SourceChecks> checks)
    : metadata_(std::move(metadata)),
      metadata_files_(std::move(metadata_files)),
      manifests_(std::move(manifests)),
      checks_(std::move(checks)),
      open_items_(checks_ == nullptr ? nullptr : std::make_unique<OpenItems>(4 * checks_->item_bytes())),
      open_files_(std::move(folder), limits, kMostOpen, wrap_with(checks_.get())),
      limits_(limits) {
  summarize();
}

void DcpCheckpoint::summarize() {
  const PodVector<StoredExtent> extents = stored_extents(metadata_);
  const auto& entries = metadata_.state_dict_metadata;
  tensors_.reserve(entries.size());
  use_huge_pages(tensors_.data(), entries.size() * sizeof(tensors_[0]));
  entry_of_tensor_.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&entries[i].second);
    if (tensor == nullptr) {
      objects_.push_back({entries[i].first, extents[i].first_length});
      continue;
    }
    tensors_.push_back({entries[i].first, tensor->properties.dtype, tensor->size,
                        bytes_of(entries[i].first, *tensor),
                        static_cast<std::uint32_t>(tensor->chunks.size()), extents[i].files});
    entry_of_tensor_.push_back(static_cast<std::uint32_t>(i));
  }
  tensors_.shrink_to_fit();
}

const TensorStorageMetadata& DcpCheckpoint::tensor_metadata(std::size_t tensor) const {
  if (tensor >= tensors_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tensor number {} of a checkpoint that has {}", tensor, tensors_.size()));
  }
  return std::get<TensorStorageMetadata>(metadata_.state_dict_metadata[entry_of_tensor_[tensor]].second);
}

std::vector<ChunkPlace> DcpCheckpoint::chunks(std::size_t tensor) const {
  const TensorStorageMetadata& stored = tensor_metadata(tensor);
  const StorageData& storage = metadata_.storage_data;
  std::vector<ChunkPlace> places;
  places.reserve(stored.chunks.size());
  for (const Box& box : stored.chunks) {
    ChunkPlace place{box, "", 0, 0};
    if (const auto entry = storage.find(tensors_[tensor].name, &box.offsets)) {
      place.file = storage.files()[storage.file_id(*entry)];
      place.offset = as_size(storage.offset(*entry));
      place.length = as_size(storage.length(*entry));
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<FileSummary> DcpCheckpoint::files() const {
  const StorageData& storage = metadata_.storage_data;
  std::vector<FileSummary> files;
  for (const std::string& name : storage.files()) files.push_back({name, std::nullopt, 0, true});
  for (std::size_t i = 0; i < storage.size(); ++i) {
    std::uint64_t& needed = files[storage.file_id(i)].needed;
    needed = std::max(needed, as_size(storage.offset(i)) + as_size(storage.length(i)));
  }
  add_listing(open_files_.root(), files);
  SetOfNames<std::string_view> own(metadata_files_.begin(), metadata_files_.end());
  own.insert(manifests_.begin(), manifests_.end());
  for (FileSummary& file : files) {
    if (!own.contains(file.name)) continue;
    file.referenced = true;
    file.needed = file.size.value_or(0);
  }
  return files;
}

std::vector<std::pair<std::string, std::string>> DcpCheckpoint::facts() const {
  bool manifest = !manifests_.empty();
  try {
    for (const std::string& name : manifests_) (void)open_files_.root().open(name);
  } catch (const Error&) {
    manifest = false;
  }
  const bool rank_local = metadata_files_.front() != kMetadataName;
  return dcp_facts({metadata_, metadata_files_.size(), rank_local, manifest});
}

Tensor DcpCheckpoint::read_at(std::size_t tensor, const Selection& selection) const {
  const TensorStorageMetadata& stored = tensor_metadata(tensor);
  const std::string_view name = tensors_[tensor].name;
  return assemble(name, stored.properties.dtype, stored.size, stored.chunks, selection,
                  Reader(*this, name, stored));
}

void DcpCheckpoint::read_into(std::size_t tensor, const Selection& selection, const TensorView& to) const {
  const TensorStorageMetadata& stored = tensor_metadata(tensor);
  const std::string_view name = tensors_[tensor].name;
  assemble_into(name, stored.size, stored.chunks, selection, Reader(*this, name, stored), to);
}

std::shared_ptr<const OpenItem> DcpCheckpoint::open_chunk(std::size_t entry, const Box& box,
                                                          DType dtype) const {
  const auto open = [&] {
    const Item item = open_item(entry, most_tensor_bytes(box, dtype));
    OpenItem opened{nullptr, item.bytes->name(), item.offset_in_file, item.transformed, 0};
    if (item.transformed) opened.held = std::min(item.bytes->size(), checks_ ? checks_->item_bytes() : 0);
    try {
      opened.archive = open_item_archive(item.bytes, limits_);
    } catch (const Error& e) {
      if (item.transformed) throw;
      throw from_start_of_file(e, item.offset_in_file, item.bytes->name());
    }
    return opened;
  };
  return open_items_ == nullptr ? std::make_shared<const OpenItem>(open()) : open_items_->get(entry, open);
}

// The item's bytes as they are in the file, checked to be there.
std::shared_ptr<const ByteSource> DcpCheckpoint::stored_bytes_of(std::size_t entry) const {
  const StorageData& storage = metadata_.storage_data;
  const std::int64_t offset = storage.offset(entry), length = storage.length(entry);
  const std::string& name = storage.files()[storage.file_id(entry)];
  if (offset < 0 || length < 0) {
    throw Error(ErrorCode::kCorrupt, fmt::format("{} bytes from {} on is no place in a file", length, offset))
        .in_file(name);
  }
  const auto file = open_files_.get(name);
  try {
    return slice_of(file, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length));
  } catch (Error& e) {
    e.in_file(file->name());
    throw;
  }
}

DcpCheckpoint::Item DcpCheckpoint::open_item(std::size_t entry, std::uint64_t max_bytes) const {
  const std::vector<std::string>& transforms = metadata_.storage_data.transforms(entry);
  std::shared_ptr<const ByteSource> stored = stored_bytes_of(entry);
  const std::string name = stored->name();
  try {
    const bool anywhere = checks_ != nullptr && !transforms.empty();
    auto plain = anywhere ? undo_transforms_anywhere(*stored, transforms, max_bytes, checks_->item_bytes(),
                                                     checks_->spill_directory())
                          : undo_transforms(std::move(stored), transforms, max_bytes);
    return {std::move(plain), static_cast<std::uint64_t>(metadata_.storage_data.offset(entry)),
            !transforms.empty()};
  } catch (const Error& e) {
    throw from_start_of_file(e, static_cast<std::uint64_t>(metadata_.storage_data.offset(entry)), name);
  }
}

std::shared_ptr<const ByteSource> DcpCheckpoint::object_archive(std::string_view name) const {
  const std::optional<std::size_t> entry = metadata_.storage_data.find(name, nullptr);
  if (!entry) fail_to_find_object(name);
  return open_item(*entry, most_object_bytes(as_size(metadata_.storage_data.length(*entry)), limits_)).bytes;
}

Value DcpCheckpoint::object(std::string_view name) const {
  const std::optional<std::size_t> entry = metadata_.storage_data.find(name, nullptr);
  if (!entry) fail_to_find_object(name);
  const std::uint64_t length = as_size(metadata_.storage_data.length(*entry));
  const Item item = open_item(*entry, most_object_bytes(length, limits_));
  try {
    return load_object(item.bytes, limits_);
  } catch (const Error& e) {
    if (item.transformed) throw;
    throw from_start_of_file(e, item.offset_in_file, item.bytes->name());
  }
}

}  // namespace cairn
