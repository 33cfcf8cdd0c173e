// Safetensors behind the Checkpoint interface: one file, or a directory of them that together hold a model.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/checked.h"
#include "base/seeded_hash.h"
#include "checkpoint/assemble.h"
#include "checkpoint/file_list.h"
#include "checkpoint/formats.h"
#include "checkpoint/open_files.h"
#include "format/safetensors.h"
#include "format/sharding_info.h"
#include "reading/read_box.h"

namespace cairn {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

struct DataFile {
  std::string name;          // in the directory
  SafetensorsHeader header;  // owns the tensors' names
  bool missing = false;
};

// A stored piece of a tensor: a whole one, unless DCP_SHARDING_INFO says otherwise.
struct StoredPart {
  std::uint32_t file = 0;
  const SafetensorsEntry* entry = nullptr;
  Shape offsets;
};

// The file's name ends the message, whatever failed.
[[noreturn]] void rethrow_in(const std::string& file, Error& e) {
  e.in_file(file);
  throw e;
}

class SafetensorsCheckpoint final : public StoredCheckpoint {
 public:
  using OpenFile = std::function<std::shared_ptr<const ByteSource>(const std::string&)>;

  SafetensorsCheckpoint(Format format, std::vector<DataFile> files, SafetensorsIndex index,
                        OpenFile open_file, std::shared_ptr<const FileSystem> folder, const Limits& limits)
      : format_(format),
        files_(std::move(files)),
        index_(std::move(index)),
        open_file_(std::move(open_file)),
        folder_(std::move(folder)) {
    for (std::size_t i = 0; i < files_.size(); ++i) add_file(static_cast<std::uint32_t>(i), limits);
    positions_.clear();
    for (std::size_t i = 0; i < tensors_.size(); ++i) finish_tensor(i);
  }

  Format format() const override { return format_; }
  const std::vector<TensorSummary>& tensors() const override { return tensors_; }
  const std::vector<ObjectSummary>& objects() const override { return objects_; }

  std::vector<ChunkPlace> chunks(std::size_t tensor) const override {
    std::vector<ChunkPlace> places;
    for (const StoredPart& piece : pieces_of(tensor)) {
      places.push_back({{piece.offsets, piece.entry->shape},
                        files_[piece.file].name,
                        piece.entry->offset,
                        piece.entry->bytes});
    }
    return places;
  }

  std::vector<FileSummary> files() const override {
    std::vector<FileSummary> files;
    for (const DataFile& file : files_) {
      std::uint64_t needed = file.header.data_offset;
      for (const SafetensorsEntry& entry : file.header.tensors)
        needed = std::max(needed, entry.offset + entry.bytes);
      files.push_back({file.name, std::nullopt, needed, true});
    }
    if (folder_ == nullptr) {
      files[0].size = files[0].needed;  // the header's reader has checked that the tensors fill the file
      return files;
    }
    add_listing(*folder_, files);
    for (FileSummary& file : files) {
      if (file.name != kIndexFile) continue;
      file.referenced = true;
      file.needed = file.size.value_or(0);
    }
    return files;
  }

  Facts facts() const override {
    Facts facts;
    const bool one = format_ == Format::kSafetensors;
    facts.emplace_back("format", one ? "safetensors file" : "Hugging Face directory of safetensors files");
    if (!one) facts.emplace_back("data files", std::to_string(files_.size()));
    const auto missing =
        std::count_if(files_.begin(), files_.end(), [](const DataFile& f) { return f.missing; });
    if (missing > 0) facts.emplace_back("missing files", std::to_string(missing));
    if (!index_.weight_map.empty())
      facts.emplace_back("total size in the index", std::to_string(index_.total_size));
    add_metadata(facts);
    facts.emplace_back("checksums", "none");
    return facts;
  }

  Tensor read_at(std::size_t tensor, const Selection& selection) const override;
  void read_into(std::size_t tensor, const Selection& selection, const TensorView& to) const override;

  Value object(std::string_view name) const override { fail_to_find_object(name); }

  Facts missing_tensors() const override {
    Facts missing;
    for (const auto& [tensor, file] : index_.weight_map)
      if (!find_tensor(tensor)) missing.emplace_back(tensor, file);
    return missing;
  }

 private:
  class Reader;

  std::string why_missing(std::string_view name) const override {
    for (const auto& entry : index_.weight_map) {
      if (entry.first != name) continue;
      const std::string& file = entry.second;
      const auto found =
          std::find_if(files_.begin(), files_.end(), [&](const DataFile& f) { return f.name == file; });
      const bool missing = found == files_.end() || found->missing;
      return fmt::format("the index says it is in '{}', which {}", file,
                         missing ? "is missing" : "does not have it");
    }
    return "";
  }

  const std::vector<StoredPart>& pieces_of(std::size_t tensor) const {
    if (tensor < pieces_.size()) return pieces_[tensor];
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tensor number {} of a checkpoint that has {}", tensor, pieces_.size()));
  }

  static std::vector<Box> boxes_of(const std::vector<StoredPart>& pieces) {
    std::vector<Box> boxes;
    for (const StoredPart& piece : pieces) boxes.push_back({piece.offsets, piece.entry->shape});
    return boxes;
  }

  void add_file(std::uint32_t number, const Limits& limits) {
    const DataFile& file = files_[number];
    try {
      MapByName<std::string, Shape> sharding;
      for (const auto& [key, text] : file.header.metadata) {
        if (key == kShardingInfoKey) sharding = parse_sharding_info(text, limits);
      }
      for (const SafetensorsEntry& entry : file.header.tensors) {
        const auto offsets = sharding.find(entry.name);
        const bool sharded = offsets != sharding.end();
        add_piece({number, &entry, sharded ? offsets->second : Shape(entry.shape.rank(), 0)}, sharded);
      }
    } catch (Error& e) {
      rethrow_in(file.name, e);
    }
  }

  void add_piece(StoredPart piece, bool sharded) {
    const SafetensorsEntry& entry = *piece.entry;
    if (piece.offsets.rank() != entry.shape.rank()) {
      throw Error(ErrorCode::kCorrupt, fmt::format("{} says {} of a tensor of shape {}", kShardingInfoKey,
                                                   to_string(piece.offsets), to_string(entry.shape)))
          .of_tensor(entry.name);
    }
    // One file cannot repeat a name, so a lone file needs no search.
    const auto [known, fresh] = files_.size() == 1
                                    ? std::pair(positions_.end(), true)
                                    : positions_.emplace(std::string_view(entry.name), tensors_.size());
    if (fresh) {
      tensors_.push_back({entry.name, entry.dtype, entry.shape, 0, 0, 0});
      pieces_.push_back({std::move(piece)});
      return;
    }
    const StoredPart& first = pieces_[known->second].front();
    if (!sharded || first.entry->dtype != entry.dtype || first.entry->shape.rank() != entry.shape.rank()) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("it is also in '{}', and {}", files_[first.file].name,
                              sharded ? "the two differ in element type or rank"
                                      : "no DCP_SHARDING_INFO says which part each file holds"))
          .of_tensor(entry.name);
    }
    pieces_[known->second].push_back(std::move(piece));
  }

  // The whole tensor reaches as far as its pieces do.
  void finish_tensor(std::size_t i) {
    TensorSummary& tensor = tensors_[i];
    std::vector<std::uint32_t> files;
    for (const StoredPart& piece : pieces_[i]) {
      files.push_back(piece.file);
      for (std::size_t d = 0; d < tensor.shape.rank(); ++d) {
        tensor.shape[d] = std::max(tensor.shape[d], checked_add(piece.offsets[d], piece.entry->shape[d]));
      }
    }
    std::sort(files.begin(), files.end());
    tensor.files = static_cast<std::uint32_t>(std::unique(files.begin(), files.end()) - files.begin());
    tensor.chunks = static_cast<std::uint32_t>(pieces_[i].size());
    const auto elements = static_cast<std::uint64_t>(tensor.shape.numel());
    tensor.bytes = checked_mul<std::uint64_t>(elements, item_size(tensor.dtype));
  }

  // Pairs that all files share are shown once; the sharding of each file is not for people.
  void add_metadata(Facts& facts) const {
    Facts shown;
    for (const DataFile& file : files_) {
      for (const auto& pair : file.header.metadata) {
        if (pair.first == kShardingInfoKey || shown.size() >= 64) continue;
        if (std::find(shown.begin(), shown.end(), pair) == shown.end()) shown.push_back(pair);
      }
    }
    for (const auto& [key, text] : shown) facts.emplace_back("metadata " + key, text);
  }

  Format format_;
  std::vector<DataFile> files_;
  SafetensorsIndex index_;
  OpenFile open_file_;
  std::shared_ptr<const FileSystem> folder_;  // null for a single file
  std::vector<TensorSummary> tensors_;
  std::vector<std::vector<StoredPart>> pieces_;         // by tensor
  std::vector<ObjectSummary> objects_;                  // there are none
  MapByName<std::string_view, std::size_t> positions_;  // while opening
};

class SafetensorsCheckpoint::Reader final : public ChunkReader {
 public:
  Reader(const SafetensorsCheckpoint& checkpoint, const std::vector<StoredPart>& pieces)
      : checkpoint_(checkpoint), pieces_(pieces) {}

  std::uint64_t most_bytes(std::size_t chunk) const override { return pieces_[chunk].entry->bytes; }

  void read(std::size_t chunk, const Selection& from, const TensorView& to) const override {
    const StoredPart& piece = pieces_[chunk];
    const auto source = checkpoint_.open_file_(checkpoint_.files_[piece.file].name);
    const SafetensorsEntry& entry = *piece.entry;
    StoredElements elements{
        source.get(), entry.offset, entry.bytes, 0, entry.dtype, entry.shape, contiguous_strides(entry.shape),
        std::nullopt};
    try {
      read_box(elements, from, to);
    } catch (Error& e) {
      rethrow_in(source->name(), e);
    }
  }

 private:
  const SafetensorsCheckpoint& checkpoint_;
  const std::vector<StoredPart>& pieces_;
};

Tensor SafetensorsCheckpoint::read_at(std::size_t tensor, const Selection& selection) const {
  const std::vector<StoredPart>& pieces = pieces_of(tensor);
  const TensorSummary& summary = tensors_[tensor];
  return assemble(summary.name, summary.dtype, summary.shape, boxes_of(pieces), selection,
                  Reader(*this, pieces));
}

void SafetensorsCheckpoint::read_into(std::size_t tensor, const Selection& selection,
                                      const TensorView& to) const {
  const std::vector<StoredPart>& pieces = pieces_of(tensor);
  assemble_into(tensors_[tensor].name, tensors_[tensor].shape, boxes_of(pieces), selection,
                Reader(*this, pieces), to);
}

SafetensorsHeader read_header(const ByteSource& source, const Limits& limits) {
  try {
    return read_safetensors_header(source, limits);
  } catch (Error& e) {
    rethrow_in(source.name(), e);
  }
}

// The index's files in the order it first names them.
std::vector<std::string> files_of(const SafetensorsIndex& index) {
  std::vector<std::string> names;
  MapByName<std::string_view, bool> seen;
  for (const auto& [tensor, file] : index.weight_map) {
    if (seen.emplace(file, true).second) names.push_back(file);
  }
  return names;
}

}  // namespace

std::unique_ptr<StoredCheckpoint> open_safetensors(const std::shared_ptr<const ByteSource>& source,
                                                   const Limits& limits) {
  std::vector<DataFile> files;
  files.push_back({std::string(base_name(source->name())), read_header(*source, limits), false});
  const auto open_file = [source](const std::string&) { return source; };
  return std::make_unique<SafetensorsCheckpoint>(Format::kSafetensors, std::move(files), SafetensorsIndex{},
                                                 open_file, nullptr, limits);
}

std::unique_ptr<StoredCheckpoint> open_hugging_face(std::shared_ptr<const FileSystem> folder,
                                                    const Limits& limits) {
  const auto open_files = std::make_shared<OpenFiles>(folder, limits);
  SafetensorsIndex index;
  std::vector<std::string> names;
  for (const FileEntry& entry : folder->entries()) {
    // Links that lead nowhere and pipes are not passed over: opening them says what is wrong.
    const bool is_folder = entry.kind == FileEntry::Kind::kFolder;
    if (entry.name.ends_with(".safetensors") && !is_folder) names.push_back(entry.name);
    if (entry.name != kIndexFile) continue;
    const auto source = open_files->get(entry.name);
    try {
      index = read_safetensors_index(*source, limits);
    } catch (Error& e) {
      rethrow_in(source->name(), e);
    }
  }
  if (!index.weight_map.empty()) names = files_of(index);
  std::vector<DataFile> files;
  for (std::string& name : names) {
    try {
      files.push_back({name, read_header(*open_files->get(name), limits), false});
    } catch (const Error& e) {
      // The index says what is missing with a file. Without one nobody does.
      if (e.code() != ErrorCode::kNotFound || index.weight_map.empty()) throw;
      files.push_back({name, {}, true});
    }
  }
  const auto open_file = [open_files](const std::string& name) { return open_files->get(name); };
  return std::make_unique<SafetensorsCheckpoint>(Format::kHuggingFace, std::move(files), std::move(index),
                                                 open_file, std::move(folder), limits);
}

}  // namespace cairn
