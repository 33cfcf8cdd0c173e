#include "format/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "format/pickle.h"
#include "format/torch_leaves.h"

namespace cairn {
namespace {

constexpr std::uint64_t kMaxVersionBytes = 32;
constexpr std::int64_t kMinVersion = 1, kMaxVersion = 10;

Error unsupported(std::string message) { return {ErrorCode::kUnsupported, std::move(message)}; }

// Files that torch.save made before 1.6, or that were never torch.save archives. Everything else is left
// to the zip reader, which says what is wrong with it.
void refuse_other_formats(const ByteSource& source) {
  constexpr std::uint64_t kTarMagic = 257;
  constexpr std::string_view kLegacyMagic = "\x80\x02\x8a\x0a";
  constexpr std::string_view kAdvice =
      "; load it once with torch.load in Python and save it again with torch.save";
  std::array<std::byte, kTarMagic + 5> head{};
  const std::size_t length = std::min<std::uint64_t>(head.size(), source.size());
  source.read_at(0, {head.data(), length});
  const std::string_view text = as_text({head.data(), length});
  if (text.starts_with(kLegacyMagic)) {
    throw unsupported(fmt::format("a torch.save file in the format from before torch 1.6{}", kAdvice)).at(0);
  }
  if (text.size() == head.size() && text.substr(kTarMagic) == "ustar") {
    throw unsupported(
        fmt::format("a tar archive: torch.save in its oldest format wrote such files{}", kAdvice))
        .at(0);
  }
  if (text.starts_with('\x80')) {
    throw unsupported(fmt::format("a bare Python pickle, not a torch.save archive{}", kAdvice)).at(0);
  }
}

void refuse_torchscript(const ZipReader& zip) {
  const std::size_t folder = zip.top_folder().size() + 1;
  const bool has_code = std::any_of(zip.entries().begin(), zip.entries().end(), [&](const ZipEntry& e) {
    return std::string_view(e.name).substr(folder).starts_with("code/");
  });
  if (has_code || zip.find("constants.pkl") != nullptr) {
    throw unsupported(
        "a TorchScript archive (torch.jit.save): it holds a program, not only a state; "
        "save the module's state_dict() instead");
  }
}

// Tensors are read from where they lie, so records are stored as they are. torch.save never compresses.
void refuse_compression(const ZipReader& zip) {
  for (const ZipEntry& e : zip.entries()) {
    if (e.deflated) throw unsupported(fmt::format("the record '{}' is compressed", e.name)).at(e.data_offset);
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  return text;
}

void check_version(const ZipReader& zip) {
  const ZipEntry* entry = zip.find(".data/version");
  if (entry == nullptr) entry = zip.find("version");
  if (entry == nullptr) throw Error(ErrorCode::kCorrupt, "the archive has no record 'version'");
  const std::string content = zip.read(*entry, kMaxVersionBytes);
  const std::string_view text = trimmed(content);
  std::int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the record '{}' is not a number", entry->name))
        .at(entry->data_offset);
  }
  if (version < kMinVersion || version > kMaxVersion) {
    throw unsupported(fmt::format("version {} of the archive format; {} to {} are known", version,
                                  kMinVersion, kMaxVersion))
        .at(entry->data_offset);
  }
}

void check_byte_order(const ZipReader& zip) {
  const ZipEntry* entry = zip.find("byteorder");
  if (entry == nullptr) return;
  const std::string order = zip.read(*entry, kMaxVersionBytes);
  if (trimmed(order) == "little") return;
  if (trimmed(order) == "big")
    throw unsupported("the archive was written on a big-endian machine").at(entry->data_offset);
  throw Error(ErrorCode::kCorrupt, "the record 'byteorder' is neither 'little' nor 'big'")
      .at(entry->data_offset);
}

// Replaces StoredTensors by Tensors; each storage is read when its first tensor is met.
class Loader {
 public:
  explicit Loader(const TorchFile& file) : file_(file) {}

  // Recursion is bounded by Limits::depth, which the file was read under.
  Value load(const Value& value) {
    if (const auto* stored = value.get_if<StoredTensor>()) return tensor(file_.tensors()[stored->id]);
    if (const auto* list = value.get_if<List>()) return load(*list);
    if (const auto* tuple = value.get_if<Tuple>()) return Tuple{load(tuple->items)};
    const auto* dict = value.get_if<Dict>();
    if (dict == nullptr) return value;
    Dict loaded;
    for (const auto& [key, v] : *dict) loaded.set(key, load(v));
    return loaded;
  }

 private:
  List load(const List& items) {
    List loaded;
    loaded.reserve(items.size());
    for (const Value& v : items) loaded.push_back(load(v));
    return loaded;
  }

  Tensor tensor(const TorchFile::Stored& stored) {
    const Tensor& memory = storage(stored);
    TensorView view;
    view.data = memory.view().data + stored.first_element * item_size(stored.tensor.dtype);
    view.dtype = stored.tensor.dtype;
    view.shape = stored.tensor.shape;
    view.strides = stored.tensor.strides;
    return {std::move(view), memory.owner()};
  }

  const Tensor& storage(const TorchFile::Stored& stored) {
    const auto known = storages_.find(stored.storage_key);
    if (known != storages_.end()) return known->second;
    Tensor memory = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(stored.storage_bytes)});
    file_.source().read_at(stored.data_offset, memory.bytes());
    const std::uint32_t crc = stored.crc == 0 ? 0 : crc32(memory.bytes());
    if (crc != stored.crc) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("record 'data/{}' has the checksum {:08x}, but the directory says {:08x}",
                              stored.storage_key, crc, stored.crc))
          .at(stored.data_offset);
    }
    return storages_.emplace(stored.storage_key, std::move(memory)).first->second;
  }

  const TorchFile& file_;
  MapByName<std::string, Tensor> storages_;
};

}  // namespace

std::unique_ptr<TorchFile> TorchFile::open(std::shared_ptr<const ByteSource> source,
                                           const TorchFileOptions& options, const Limits& limits) {
  refuse_other_formats(*source);
  std::unique_ptr<TorchFile> file(new TorchFile);
  file->source_ = source;
  ZipOptions zip_options;
  zip_options.max_entries = options.max_entries;
  zip_options.allow_deflate = true;  // TorchScript compresses its code; say so rather than how
  file->zip_ = std::make_unique<ZipReader>(std::move(source), zip_options, limits);
  refuse_torchscript(*file->zip_);
  refuse_compression(*file->zip_);
  check_version(*file->zip_);
  check_byte_order(*file->zip_);

  const ZipEntry* entry = file->zip_->find("data.pkl");
  if (entry == nullptr) throw Error(ErrorCode::kCorrupt, "the archive has no record 'data.pkl'");
  const std::string program = file->zip_->read(*entry, options.max_pickle_bytes);
  try {
    pickle::Options pickle_options;
    pickle_options.dialect = pickle::Dialect::kTorch;
    pickle_options.max_bytes = options.max_pickle_bytes;
    Budget& budget = file->budget_ = Budget(program.size(), limits);
    pickle_options.budget = &budget;
    const pickle::Graph graph = pickle::read(*memory_source(as_bytes(program)), pickle_options, limits);
    TorchLeaves leaves(*file->zip_, budget, limits);
    const auto leaf = [&](const pickle::Graph& g, pickle::Ref ref, Value& value) {
      return leaves.read(g, ref, value);
    };
    file->root_ = pickle::to_value(graph, graph.root(), leaf, budget, limits);
    file->tensors_ = leaves.take();
    budget.give_back(graph.memory());
  } catch (Error& e) {
    e.while_doing("reading the record data.pkl");
    throw;
  }
  return file;
}

Value TorchFile::load() const { return Loader(*this).load(root_); }

}  // namespace cairn
