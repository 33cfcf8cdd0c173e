#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/source.h"
#include "cairn/error.h"
#include "format/dcp_metadata.h"
#include "format/pickle_writer.h"
#include "format/storage_table.h"

namespace cairn {
namespace {

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::size_t kBatch = 1000;  // entries between MARK and SETITEMS, as CPython does

// Writes the classes of DCP as CPython would pickle them, protocol 4. Field names, classes, tensor and
// file names are memoised, nothing else is.
class MetadataWriter {
 public:
  explicit MetadataWriter(ByteSink& sink) : w_(sink, 4) {}

  void write(const Metadata& metadata);

 private:
  // Something that comes again and again: after the first time, a memo number.
  struct Again {
    static constexpr std::uint32_t kNotYet = ~std::uint32_t{0};
    std::uint32_t number = kNotYet;
  };
  struct Word : Again {
    Word(std::string_view m, std::string_view n) : module(m), name(n) {}
    std::string_view module, name;  // no module: a field name
  };
  // `first` writes it and memoises it last.
  template <class F> void put(Again& again, F&& first) {
    if (again.number != Again::kNotYet) return w_.fetch(again.number);
    first();
    again.number = w_.last_memo();
  }
  void put(Word& word) {
    put(word, [&] {
      if (!word.module.empty()) return w_.global(word.module, word.name);
      w_.string(word.name);
      w_.memoize();
    });
  }
  void begin_object(Word& cls) {
    put(cls);
    w_.raw(")\x81}(");  // EMPTY_TUPLE, NEWOBJ, EMPTY_DICT, MARK
  }
  void field(Word& name) { put(name); }
  void extra(const Dict& attributes);
  void end_object() { w_.raw("ub"); }  // SETITEMS, BUILD
  void size(std::span<const std::int64_t> dims);
  void properties(const TensorProperties& properties);
  void tensor(const TensorStorageMetadata& tensor);
  void chunk(const Box& box, const Dict* attributes);
  void bytes(const BytesStorageMetadata& bytes);
  void entries(const Metadata& metadata);
  void planner_data(const Metadata& metadata);
  void storage_data(const Metadata& metadata);
  void key(const StorageRows& rows, std::size_t row);
  void place(const StorageRows& rows, std::size_t row);
  void storage_meta(const StorageMeta& meta);
  void text_or_none(const std::optional<std::string>& text);
  // A dict of `count` entries, written in batches; `entry(i)` writes key and value.
  template <class F> void dict(std::size_t count, F&& entry);

  pickle::Writer w_;
  Word metadata_{kMetadataModule, "Metadata"}, tensor_{kMetadataModule, "TensorStorageMetadata"};
  Word chunk_{kMetadataModule, "ChunkStorageMetadata"}, index_{kMetadataModule, "MetadataIndex"};
  Word info_{"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
      storage_meta_{kMetadataModule, "StorageMeta"};
  Word properties_class_{kMetadataModule, "TensorProperties"};
  std::array<Again, kDTypeCount> dtypes_;
  std::array<Again, 8> layouts_;
  std::array<Again, 3> formats_;
  Word size_class_{"torch", "Size"}, bytes_{kMetadataModule, "BytesStorageMetadata"};
  Word offsets_{"", "offsets"}, sizes_{"", "sizes"}, properties_{"", "properties"}, size_{"", "size"},
      chunks_{"", "chunks"};
  Word fqn_{"", "fqn"}, hint_{"", "index"}, offset_{"", "offset"}, path_{"", "relative_path"},
      length_{"", "length"};
};

template <class F> void MetadataWriter::dict(std::size_t count, F&& entry) {
  w_.empty_dict();
  for (std::size_t i = 0; i < count;) {
    w_.mark();
    for (const std::size_t end = std::min(count, i + kBatch); i < end; ++i) entry(i);
    w_.setitems();
  }
}

void MetadataWriter::extra(const Dict& attributes) {
  for (const auto& [name, value] : attributes) {
    w_.shared_string(to_string(name));
    w_.value(value);
  }
}

void MetadataWriter::size(std::span<const std::int64_t> dims) {
  put(size_class_);
  if (dims.size() > 3) w_.mark();
  for (const std::int64_t dim : dims) w_.integer(dim);
  if (dims.size() > 3) {
    w_.tuple();
  } else {
    w_.tuple(dims.size());
  }
  w_.tuple(1);
  w_.reduce();
}

void MetadataWriter::properties(const TensorProperties& p) {
  put(properties_class_);
  w_.raw(")\x81(");  // EMPTY_TUPLE, NEWOBJ, MARK
  put(dtypes_[static_cast<std::size_t>(p.dtype)], [&] { w_.global("torch", name_of(p.dtype)); });
  put(layouts_[static_cast<std::size_t>(p.layout)], [&] {
    w_.global("torch.serialization", "_get_layout");
    w_.string(name_of(p.layout));
    w_.raw("\x85R");  // TUPLE1, REDUCE
    w_.memoize();
  });
  w_.boolean(p.requires_grad);
  put(formats_[static_cast<std::size_t>(p.memory_format)], [&] {
    w_.global(kMetadataModule, "_MEM_FORMAT_ENCODING");
    w_.integer(static_cast<int>(p.memory_format));
    w_.raw("\x85R");
    w_.memoize();
  });
  w_.boolean(p.pin_memory);
  // Every released torch unpacks exactly five: what a later one appended goes to kPropertiesExtra.
  w_.raw("tb");  // TUPLE, BUILD
}

void MetadataWriter::chunk(const Box& box, const Dict* attributes) {
  begin_object(chunk_);
  field(offsets_);
  size(box.offsets.dims());
  field(sizes_);
  size(box.sizes.dims());
  if (attributes != nullptr) extra(*attributes);
  end_object();
}

void MetadataWriter::tensor(const TensorStorageMetadata& t) {
  begin_object(tensor_);
  field(properties_);
  properties(t.properties);
  field(size_);
  size(t.size.dims());
  field(chunks_);
  w_.empty_list();
  auto attributes = t.chunk_extra.begin();
  for (std::size_t i = 0; i < t.chunks.size();) {
    w_.mark();
    for (const std::size_t end = std::min(t.chunks.size(), i + kBatch); i < end; ++i) {
      const bool has_extra = attributes != t.chunk_extra.end() && attributes->first == i;
      chunk(t.chunks[i], has_extra ? &attributes->second : nullptr);
      if (has_extra) ++attributes;
    }
    w_.appends();
  }
  if (!t.properties.extra.empty()) {
    w_.shared_string(kPropertiesExtra);
    w_.value(t.properties.extra);
  }
  extra(t.extra);
  end_object();
}

void MetadataWriter::bytes(const BytesStorageMetadata& b) {
  put(bytes_);
  w_.tuple(0);
  w_.newobj();
  if (b.extra.empty()) return;
  w_.empty_dict();
  w_.mark();
  extra(b.extra);
  end_object();
}

void MetadataWriter::entries(const Metadata& metadata) {
  dict(metadata.state_dict_metadata.size(), [&](std::size_t i) {
    const auto& [name, stored] = metadata.state_dict_metadata[i];
    w_.shared_string(name);
    if (const auto* t = std::get_if<TensorStorageMetadata>(&stored)) {
      tensor(*t);
    } else {
      bytes(std::get<BytesStorageMetadata>(stored));
    }
  });
}

void MetadataWriter::planner_data(const Metadata& metadata) {
  if (std::holds_alternative<None>(metadata.planner_data)) return w_.none();
  if (const auto* foreign = std::get_if<Value>(&metadata.planner_data)) return w_.value(*foreign);
  const auto& paths = std::get<PathMap>(metadata.planner_data);
  dict(paths.size(), [&](std::size_t i) {
    w_.shared_string(paths.fqn(i));
    const Path path = paths.path(i);
    if (path.size() > 3) w_.mark();
    for (const Key& step : path) {
      if (const auto* name = std::get_if<std::string>(&step)) {
        w_.shared_string(*name);
      } else {
        w_.integer(std::get<std::int64_t>(step));
      }
    }
    if (path.size() > 3) {
      w_.tuple();
    } else {
      w_.tuple(path.size());
    }
  });
}

void MetadataWriter::key(const StorageRows& rows, std::size_t row) {
  const StorageRows::Key& k = rows.keys[row];
  begin_object(index_);
  field(fqn_);
  w_.shared_string(rows.names[k.fqn]);
  field(hint_);
  if (k.hint == StorageRows::kNoHint) {
    w_.none();
  } else {
    w_.integer(k.hint);
  }
  if (k.dims != StorageRows::kNoOffset) {
    field(offset_);
    size({rows.dims.dims(k.dims), rows.dims.rank(k.dims)});
  }
  if (const auto found = rows.key_extra.find(row); found != rows.key_extra.end()) extra(found->second);
  end_object();
}

void MetadataWriter::place(const StorageRows& rows, std::size_t row) {
  const StorageRows::Place& p = rows.places[row];
  begin_object(info_);
  field(path_);
  w_.shared_string(rows.files[p.file]);
  field(offset_);
  w_.integer(p.offset);
  field(length_);
  w_.integer(p.length);
  if (p.transforms != 0) {
    w_.shared_string("transform_descriptors");
    w_.empty_list();
    w_.mark();
    for (const std::string& name : rows.transform_lists[p.transforms]) w_.shared_string(name);
    w_.appends();
  }
  if (const auto found = rows.place_extra.find(row); found != rows.place_extra.end()) extra(found->second);
  end_object();
}

void MetadataWriter::storage_data(const Metadata& metadata) {
  const StorageRows& rows = metadata.storage_data.table();
  dict(rows.keys.size(), [&](std::size_t row) {
    key(rows, row);
    place(rows, row);
  });
}

void MetadataWriter::text_or_none(const std::optional<std::string>& text) {
  if (text) {
    w_.string(*text);
  } else {
    w_.none();
  }
}

void MetadataWriter::storage_meta(const StorageMeta& meta) {
  begin_object(storage_meta_);
  w_.shared_string("checkpoint_id");
  text_or_none(meta.checkpoint_id);
  w_.shared_string("save_id");
  text_or_none(meta.save_id);
  w_.shared_string("load_id");
  text_or_none(meta.load_id);
  w_.shared_string("modules");
  w_.value(meta.modules);
  extra(meta.extra);
  end_object();
}

void MetadataWriter::write(const Metadata& metadata) {
  begin_object(metadata_);
  w_.shared_string("state_dict_metadata");
  entries(metadata);
  w_.shared_string("planner_data");
  planner_data(metadata);
  w_.shared_string("storage_data");
  if (metadata.foreign_storage_data.is<None>()) {
    storage_data(metadata);
  } else {
    w_.value(metadata.foreign_storage_data);
  }
  w_.shared_string("storage_meta");
  if (metadata.storage_meta) {
    storage_meta(*metadata.storage_meta);
  } else {
    w_.none();
  }
  w_.shared_string("version");
  text_or_none(metadata.version);
  extra(metadata.extra);
  end_object();
  w_.finish();
}

}  // namespace

void write_dcp_metadata(ByteSink& sink, const Metadata& metadata) { MetadataWriter(sink).write(metadata); }

namespace {

bool has_extra(const StorageMetadata& entry) {
  const auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
  if (tensor == nullptr) return !std::get<BytesStorageMetadata>(entry).extra.empty();
  return !tensor->extra.empty() || !tensor->chunk_extra.empty() || !tensor->properties.extra.empty();
}

// Whether something in it was given by somebody else, and may be anything.
bool holds_foreign_values(const Metadata& metadata) {
  const auto& entries = metadata.state_dict_metadata;
  return std::holds_alternative<Value>(metadata.planner_data) || !metadata.foreign_storage_data.is<None>() ||
         !metadata.extra.empty() ||
         (metadata.storage_meta &&
          (!metadata.storage_meta->modules.empty() || !metadata.storage_meta->extra.empty())) ||
         std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return has_extra(entry.second); });
}

// The metadata without its many entries, as far as those are nobody else's.
Metadata foreign_part(const Metadata& metadata) {
  Metadata part;
  for (const auto& entry : metadata.state_dict_metadata)
    if (has_extra(entry.second)) part.state_dict_metadata.push_back(entry);
  if (const auto* value = std::get_if<Value>(&metadata.planner_data)) part.planner_data = *value;
  part.foreign_storage_data = metadata.foreign_storage_data;
  part.storage_meta = metadata.storage_meta;
  part.extra = metadata.extra;
  return part;
}

}  // namespace

std::string encode_dcp_metadata(const Metadata& metadata, const Limits& limits) {
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  if (sink.text.size() > limits.metadata_bytes)
    throw Error(ErrorCode::kLimit, fmt::format("the metadata has {} bytes, more than the {} that are read",
                                               sink.text.size(), limits.metadata_bytes));
  if (!holds_foreign_values(metadata)) return std::move(sink.text);
  StringSink foreign;
  write_dcp_metadata(foreign, foreign_part(metadata));
  try {
    (void)read_dcp_metadata(*memory_source(as_bytes(foreign.text)), limits);
  } catch (const Error& e) {
    throw Error(e.code(),
                "planner data or an attribute in the metadata could not be read back: " + e.message())
        .of_tensor(e.tensor());
  }
  return std::move(sink.text);
}

}  // namespace cairn
