// Where the bytes of a torch.save file lie, and the state it holds.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "cairn/error.h"
#include "convert/convert_layout.h"
#include "format/pickle_writer.h"
#include "format/storage_keys.h"
#include "format/torch_archive.h"

namespace cairn {
namespace {

constexpr std::uint64_t kAlignment = 64;  // as torch has it

// A record data/N of the archive.
struct TorchRecord {
  Segment::Kind kind = Segment::Kind::kTensor;
  std::size_t index = 0;
  std::size_t entry = 0;  // the first that lies in it
  std::uint64_t bytes = 0;
};

// Gives each storage its number. Storages that are one in the source stay one.
class TorchRecords {
 public:
  std::string key_of_raw(std::size_t entry, const RawStorage& storage) {
    const auto [known, fresh] =
        raw_numbers_.emplace(std::pair(storage.source.get(), storage.offset), records.size());
    if (fresh) {
      records.push_back({Segment::Kind::kRaw, raw.size(), entry, storage.bytes});
      raw.push_back(storage);
    }
    return std::to_string(known->second);
  }
  std::string key_of_tensor(std::size_t entry, std::uint64_t bytes) {
    records.push_back({Segment::Kind::kTensor, entry, entry, bytes});
    return std::to_string(records.size() - 1);
  }

  std::vector<TorchRecord> records;
  std::vector<RawStorage> raw;

 private:
  std::map<std::pair<const ByteSource*, std::uint64_t>, std::size_t> raw_numbers_;
};

// The state as a nested value: entries where they belong, a tensor as a StoredTensor whose id is the entry's
// position, an object as a program to splice in.
class TorchState {
 public:
  TorchState(const std::vector<ConvertEntry>& entries, const CheckpointSource& source)
      : entries_(entries), source_(source) {
    const TorchFile* file = source.torch_file();
    const bool renamed =
        std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.name != e.from; });
    state_ = file == nullptr || renamed ? unflattened() : as_in(file->root());
  }

  std::string program() {
    StringSink sink;
    pickle::Writer w(sink, 2);
    w.value(state_,
            [this](pickle::Writer& writer, const Value& value) { write(writer, value.get<StoredTensor>()); });
    w.finish();
    return std::move(sink.text);
  }
  TorchRecords& records() { return records_; }

 private:
  Value value_of(std::size_t at) {
    const ConvertEntry& entry = entries_[at];
    if (!entry.tensor) {
      const StoredObject object = source_.object(entry.from);
      std::map<std::string, std::string> names;
      for (const auto& [key, storage] : object.storages) names[key] = records_.key_of_raw(at, storage);
      return Opaque{"",
                    rename_storages(object.pickle, [&](const std::string& key) { return names.at(key); })};
    }
    StoredTensor tensor;
    if (const StoredTensor* stored = source_.stored_tensor(*entry.tensor)) tensor = *stored;
    if (!is_raw(entry)) tensor.strides = contiguous_strides(entry.shape);
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    tensor.id = at;
    return tensor;
  }

  // A tensor of another torch.save file keeps its storage, which it may share.
  bool is_raw(const ConvertEntry& entry) const {
    const StoredTensor* stored = source_.stored_tensor(*entry.tensor);
    return stored != nullptr && stored->dtype == entry.dtype;
  }

  void write(pickle::Writer& w, const StoredTensor& tensor) {
    const ConvertEntry& entry = entries_[tensor.id];
    if (!is_raw(entry)) {
      return write_stored_tensor(w, tensor, 0,
                                 {entry.dtype, entry.bytes, records_.key_of_tensor(tensor.id, entry.bytes)});
    }
    const std::uint64_t id = source_.stored_tensor(*entry.tensor)->id;
    const RawStorage storage = source_.storage_of(id);
    write_stored_tensor(w, tensor, source_.torch_file()->tensors()[id].first_element,
                        {source_.storage_type(id), storage.bytes, records_.key_of_raw(tensor.id, storage)});
  }

  Value unflattened() {
    Flattened flat;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      flat.push_back({entries_[i].name, entries_[i].path, value_of(i)});
    return unflatten(flat);
  }

  // Containers and keys as the source has them, numbers among them; entries that were left out are missing,
  // in lists None.
  Value as_in(const Value& root) {
    const bool whole = !root.is<Dict>() && entries_.size() == 1 && !is_position(entries_[0].path.front());
    if (whole || (!root.is<Dict>() && !root.is<List>() && !root.is<Tuple>()))
      return entries_.empty() ? Value(Dict{}) : value_of(0);
    Value made = empty_like(root);
    for (std::size_t i = 0; i < entries_.size(); ++i) place(made, root, entries_[i].path, value_of(i));
    if (root.is<Tuple>()) return Tuple{std::move(made.get<List>())};
    return made;
  }

  // Of a list: else the step is the name of the file's one entry.
  static bool is_position(const Key& step) {
    const auto* name = std::get_if<std::string>(&step);
    return name == nullptr || name->find_first_not_of("0123456789") == std::string::npos;
  }

  static Value empty_like(const Value& value) {
    if (value.is<Dict>()) return Dict{};
    return value.is<List>() || value.is<Tuple>() ? Value(List{}) : Value();
  }

  static void place(Value& made, const Value& root, const Path& path, Value value) {
    Value* to = &made;
    const Value* from = &root;
    for (const Key& step : path) {
      if (const Dict* dict = from->get_if<Dict>()) {
        const Key key = key_in(*dict, step);
        from = dict->find(key);
        if (to->get<Dict>().find(key) == nullptr) to->get<Dict>().set(key, empty_like(*from));
        to = to->get<Dict>().find(key);
      } else {
        const List& list = from->is<Tuple>() ? from->get<Tuple>().items : from->get<List>();
        const auto at = static_cast<std::size_t>(std::stoull(to_string(step)));
        from = &list.at(at);
        List& grown = to->get<List>();
        if (grown.size() <= at) grown.resize(at + 1);
        if (grown[at].is<None>()) grown[at] = empty_like(*from);
        to = &grown[at];
      }
    }
    *to = std::move(value);
  }

  // A step is the key's text; the key may be a number.
  static Key key_in(const Dict& dict, const Key& step) {
    if (dict.find(step) != nullptr) return step;
    for (const auto& [key, value] : dict)
      if (to_string(key) == to_string(step)) return key;
    throw Error(ErrorCode::kInternal, "an entry's path leads nowhere");
  }

  const std::vector<ConvertEntry>& entries_;
  const CheckpointSource& source_;
  TorchRecords records_;
  Value state_;
};

std::string stem_of(const std::string& file_name) {
  const std::string stem = file_name.substr(0, file_name.rfind('.'));
  const bool odd =
      std::any_of(stem.begin(), stem.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; });
  return stem.empty() || odd || stem.find('\\') != stem.npos ? "archive" : stem;
}

// The bytes of the archive between its records: before the first, between each two, and after the last.
std::vector<std::string> archive_parts(const std::string& name, const std::string& program,
                                       const std::vector<TorchRecord>& records,
                                       const std::vector<std::uint32_t>& sums) {
  StringSink sink;
  TorchArchive archive(sink, name, kAlignment);
  std::vector<std::string> parts;
  archive.add_head(program);
  for (std::size_t i = 0; i < records.size(); ++i) {
    archive.begin_elsewhere(fmt::format("data/{}", i), records[i].bytes);
    parts.push_back(std::exchange(sink.text, {}));
    archive.end_elsewhere(sums[i]);
  }
  archive.finish();
  parts.push_back(std::move(sink.text));
  return parts;
}

}  // namespace

OutputLayout lay_out_torch(const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
                           const std::string& file_name) {
  TorchState state(entries, source);
  const std::string program = state.program();
  std::vector<TorchRecord> records = std::move(state.records().records);
  const std::string name = stem_of(file_name);

  FileLayout file;
  file.name = file_name;
  file.raw = std::move(state.records().raw);
  std::vector<std::string> parts =
      archive_parts(name, program, records, std::vector<std::uint32_t>(records.size()));
  for (std::size_t i = 0; i < records.size(); ++i) {
    file.add_fixed(std::move(parts[i]));
    file.add(records[i].kind, records[i].bytes, records[i].index, records[i].entry);
  }
  file.add_fixed(std::move(parts.back()));
  file.finish = [=](const std::vector<std::uint32_t>& sums) {
    std::vector<std::uint32_t> of_records;
    for (std::size_t i = 0; i < records.size(); ++i) of_records.push_back(sums[2 * i + 1]);
    return archive_parts(name, program, records, of_records);
  };
  OutputLayout layout;
  layout.files.push_back(std::move(file));
  layout.file_of.assign(entries.size(), file_name);
  return layout;
}

}  // namespace cairn
