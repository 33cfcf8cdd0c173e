// A torch.save archive behind the Checkpoint interface: its nested state, flattened as DCP would.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "checkpoint/assemble.h"
#include "checkpoint/formats.h"
#include "reading/source_checks.h"
#include "reading/torch_elements.h"
#include "state/entries.h"

namespace cairn {
namespace {

constexpr std::string_view kRootName = "(root)";

// A list or tuple of tensors or dicts at the top becomes entries "0", "1", ...; a bare tensor or object is
// one entry, and so is a list of plain values, as it is further down.
std::vector<EntryView> entries_of(TorchFile& file) {
  const Value& root = file.root();
  const List* items = root.get_if<List>();
  if (const auto* tuple = root.get_if<Tuple>()) items = &tuple->items;
  if (!root.is<Dict>() && (items == nullptr || !holds_entries(*items)))
    return {{std::string(kRootName), {std::string(kRootName)}, &root}};
  // What an entry is told as, tensor or object, is no longer than its name and a tensor's shape.
  return entries_in(root, FlattenRule::kCurrent, [&](std::uint64_t bytes) {
    file.budget().take(bytes + sizeof(TensorSummary) + sizeof(std::uint64_t));
  });
}

class TorchCheckpoint final : public StoredCheckpoint {
 public:
  TorchCheckpoint(std::unique_ptr<TorchFile> file, const Limits& limits, std::shared_ptr<SourceChecks> checks)
      : file_(std::move(file)), limits_(limits), checks_(std::move(checks)), entries_(entries_of(*file_)) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const EntryView& entry = entries_[i];
      if (const auto* tensor = entry.value->get_if<StoredTensor>()) {
        const auto elements = static_cast<std::uint64_t>(tensor->shape.numel());
        tensors_.push_back({entry.name, tensor->dtype, tensor->shape,
                            checked_mul<std::uint64_t>(elements, item_size(tensor->dtype)), 1, 1});
        ids_.push_back(tensor->id);
      } else {
        // Inside data.pkl a plain value has no size of its own; an opaque one brings its pickle.
        const auto* opaque = entry.value->get_if<Opaque>();
        objects_.push_back({entry.name, opaque == nullptr ? 0 : opaque->pickle.size()});
        entry_of_object_.push_back(i);
      }
    }
  }

  Format format() const override { return Format::kTorchFile; }
  const std::vector<TensorSummary>& tensors() const override { return tensors_; }
  const std::vector<ObjectSummary>& objects() const override { return objects_; }

  std::vector<ChunkPlace> chunks(std::size_t tensor) const override {
    const TorchFile::Stored& stored = stored_at(tensor);
    const std::uint64_t item = item_size(stored.tensor.dtype);
    ChunkPlace place{Box::whole(stored.tensor.shape), std::string(base_name(file_->source().name())), 0, 0};
    place.offset = checked_add(stored.data_offset, checked_mul(stored.first_element, item));
    place.length = checked_mul(extent_of(stored.tensor), item);
    return {place};
  }

  std::vector<FileSummary> files() const override {
    const std::uint64_t size = file_->source().size();
    return {{std::string(base_name(file_->source().name())), size, size, true}};
  }

  std::vector<std::pair<std::string, std::string>> facts() const override {
    std::vector<std::pair<std::string, std::string>> facts;
    facts.emplace_back("format", "torch.save archive");
    facts.emplace_back("written by", written_by());
    add_record(facts, "archive version", "version");
    add_record(facts, "format version", ".format_version");
    add_record(facts, "byteorder", "byteorder");
    add_record(facts, "alignment", ".storage_alignment");
    if (const auto protocol = pickle_protocol())
      facts.emplace_back("pickle protocol", std::to_string(*protocol));
    facts.emplace_back("records", std::to_string(file_->zip().entries().size()));
    facts.emplace_back("checksums", "zip CRC-32 per record");
    return facts;
  }

  Tensor read_at(std::size_t tensor, const Selection& selection) const override {
    const TorchFile::Stored& stored = stored_at(tensor);
    return read_stored(tensors_[tensor].name, stored, selection);
  }

  void read_into(std::size_t tensor, const Selection& selection, const TensorView& to) const override;

  TorchParts torch_parts() const override { return {file_.get(), &entries_}; }

  Value object(std::string_view name) const override {
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      if (objects_[i].name != name) continue;
      std::uint64_t read = 0;
      return loaded(*entries_[entry_of_object_[i]].value, name, 0, read);
    }
    fail_to_find_object(name);
  }

 private:
  class Reader;

  const TorchFile::Stored& stored_at(std::size_t tensor) const {
    if (tensor < ids_.size()) return file_->tensors().at(ids_[tensor]);
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tensor number {} of a file that has {}", tensor, ids_.size()));
  }

  // Elements from the first to the last, in the storage.
  static std::uint64_t extent_of(const StoredTensor& tensor) {
    if (tensor.shape.numel() == 0) return 0;
    std::int64_t last = 0;
    for (std::size_t d = 0; d < tensor.shape.rank(); ++d) {
      last = checked_add(last, checked_mul(tensor.shape[d] - 1, tensor.strides[d]));
    }
    return static_cast<std::uint64_t>(last) + 1;
  }

  Tensor read_stored(std::string_view name, const TorchFile::Stored& stored,
                     const Selection& selection) const;

  // The value with the tensors inside it read, as deep as data.pkl may nest; `read` adds up their bytes.
  Value loaded(const Value& value, std::string_view name, std::uint32_t depth, std::uint64_t& read) const {
    if (depth > limits_.depth) throw Error(ErrorCode::kLimit, fmt::format("'{}' is nested too deeply", name));
    if (const auto* tensor = value.get_if<StoredTensor>()) {
      const auto elements = static_cast<std::uint64_t>(tensor->shape.numel());
      read = checked_add(read, checked_mul<std::uint64_t>(elements, item_size(tensor->dtype)));
      if (read > kFreeBytes + kMostGrowth * file_->source().size()) {
        throw Error(ErrorCode::kLimit, fmt::format("'{}' holds tensors of more than {} times the file's size",
                                                   name, kMostGrowth));
      }
      return read_stored(name, file_->tensors().at(tensor->id), {});
    }
    const auto all = [&](const List& items) {
      List copy;
      for (const Value& item : items) copy.push_back(loaded(item, name, depth + 1, read));
      return copy;
    };
    if (const auto* list = value.get_if<List>()) return all(*list);
    if (const auto* tuple = value.get_if<Tuple>()) return Tuple{all(tuple->items)};
    const auto* dict = value.get_if<Dict>();
    if (dict == nullptr) return value;
    Dict copy;
    for (const auto& [key, item] : *dict) copy.set(key, loaded(item, name, depth + 1, read));
    return copy;
  }

  std::string written_by() const {
    if (file_->zip().find(".format_version") != nullptr) return "torch 2.7 or later";
    return file_->zip().find("byteorder") != nullptr ? "torch 2.1 to 2.6" : "torch 1.6 to 2.0";
  }

  void add_record(std::vector<std::pair<std::string, std::string>>& facts, const char* fact,
                  std::string_view record) const {
    const ZipEntry* entry = file_->zip().find(record);
    if (entry == nullptr || entry->size > 256) return;
    std::string text = file_->zip().read(*entry, 256);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    facts.emplace_back(fact, std::move(text));
  }

  std::optional<int> pickle_protocol() const {
    const ZipEntry* entry = file_->zip().find("data.pkl");
    if (entry == nullptr || entry->size < 2 || entry->deflated) return std::nullopt;
    std::byte head[2];
    file_->zip().source().read_at(entry->data_offset, head);
    if (head[0] != std::byte{0x80}) return std::nullopt;
    return static_cast<int>(head[1]);
  }

  std::unique_ptr<TorchFile> file_;
  Limits limits_;
  std::shared_ptr<SourceChecks> checks_;
  std::vector<EntryView> entries_;
  std::vector<TensorSummary> tensors_;
  std::vector<std::uint64_t> ids_;  // in file_->tensors()
  std::vector<ObjectSummary> objects_;
  std::vector<std::size_t> entry_of_object_;
};

class TorchCheckpoint::Reader final : public ChunkReader {
 public:
  Reader(const TorchFile& file, const TorchFile::Stored& stored, SourceChecks* checks)
      : file_(file), stored_(stored), checks_(checks) {}

  std::uint64_t most_bytes(std::size_t) const override { return stored_.storage_bytes; }

  void read(std::size_t, const Selection& from, const TensorView& to) const override {
    read_checked(elements_of(file_, stored_), from, to, checks_);
  }

 private:
  const TorchFile& file_;
  const TorchFile::Stored& stored_;
  SourceChecks* checks_;
};

Tensor TorchCheckpoint::read_stored(std::string_view name, const TorchFile::Stored& stored,
                                    const Selection& selection) const {
  try {
    const StoredTensor& tensor = stored.tensor;
    return assemble(name, tensor.dtype, tensor.shape, {Box::whole(tensor.shape)}, selection,
                    Reader(*file_, stored, checks_.get()));
  } catch (Error& e) {
    e.in_file(file_->source().name());
    throw;
  }
}

void TorchCheckpoint::read_into(std::size_t tensor, const Selection& selection, const TensorView& to) const {
  try {
    const TorchFile::Stored& stored = stored_at(tensor);
    const Shape& shape = stored.tensor.shape;
    assemble_into(tensors_[tensor].name, shape, {Box::whole(shape)}, selection,
                  Reader(*file_, stored, checks_.get()), to);
  } catch (Error& e) {
    e.in_file(file_->source().name());
    throw;
  }
}

}  // namespace

std::unique_ptr<StoredCheckpoint> open_torch_checkpoint(std::shared_ptr<const ByteSource> source,
                                                        const Limits& limits,
                                                        std::shared_ptr<SourceChecks> checks) {
  const std::string name = source->name();
  try {
    auto file = TorchFile::open(std::move(source), {limits.torch_pickle_bytes, limits.zip_entries}, limits);
    return std::make_unique<TorchCheckpoint>(std::move(file), limits, std::move(checks));
  } catch (Error& e) {
    e.in_file(name);
    throw;
  }
}

}  // namespace cairn
