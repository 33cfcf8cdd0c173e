#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cairn/error.h"
#include "format/pickle_writer.h"
#include "format/torch_dtype.h"
#include "format/torch_file.h"
#include "format/torch_storages.h"
#include "format/zip.h"

namespace cairn {
namespace {

void write_shape(pickle::Writer& w, const Shape& shape) {
  if (shape.rank() > 3) w.mark();
  for (const std::int64_t n : shape) w.integer(n);
  if (shape.rank() > 3) {
    w.tuple();
  } else {
    w.tuple(shape.rank());
  }
}

// The class that names the storage's type; nullopt when tensors in it have to name their own.
std::optional<std::string_view> typed_class(const PlannedStorage& storage) {
  return storage.dtype ? storage_class(*storage.dtype) : std::nullopt;
}

// ('storage', torch.FloatStorage, '0', 'cpu', 4) as a persistent id.
void write_storage(pickle::Writer& w, const PlannedStorage& storage, std::size_t key) {
  const auto name = typed_class(storage);
  w.mark();
  w.shared_string("storage");
  if (name) {
    w.global("torch", *name);
  } else {
    w.global("torch.storage", "UntypedStorage");
  }
  w.string(std::to_string(key));
  w.shared_string("cpu");
  w.integer(static_cast<std::int64_t>(storage.bytes / (name ? item_size(*storage.dtype) : 1)));
  w.tuple();
  w.persid();
}

void write_tensor(pickle::Writer& w, const TorchStorages& plan, const Value& value) {
  const PlannedTensor& tensor = plan.tensors.at(&value);
  const PlannedStorage& storage = plan.storages[tensor.storage];
  const TensorView& view = value.get<Tensor>().view();
  const bool typed = typed_class(storage).has_value();
  w.global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  w.mark();
  write_storage(w, storage, tensor.storage);
  w.integer(static_cast<std::int64_t>(tensor.offset));
  write_shape(w, view.shape);
  write_shape(w, tensor.strides);
  w.boolean(false);
  w.global("collections", "OrderedDict");
  w.tuple(0);
  w.reduce();
  if (!typed) w.global("torch", name_of(view.dtype));
  w.tuple();
  w.reduce();
}

std::string write_pickle(const Value& root, const TorchStorages& plan) {
  StringSink sink;
  pickle::Writer w(sink, 2);
  w.value(root, [&](pickle::Writer& writer, const Value& value) { write_tensor(writer, plan, value); });
  w.finish();
  return std::move(sink.text);
}

// Writes records and remembers what torch's serialization id is made of: their names and checksums.
class Archive {
 public:
  Archive(ByteSink& sink, const TorchWriteOptions& options)
      : zip_(sink, options.archive_name, options.alignment) {}

  void add(std::string_view name, ByteSpan bytes) {
    const std::uint32_t crc = crc32(bytes);
    zip_.begin(name, bytes.size());
    zip_.append(bytes);
    zip_.end_with_crc(crc);
    names_.append(name).push_back('\n');
    crcs_.push_back(crc);
  }

  void add(std::string_view name, const PlannedStorage& storage) {
    if (storage.gather == nullptr) return add(name, storage.memory);
    const TensorView& view = storage.gather->view();
    const Tensor packed = Tensor::empty(view.dtype, view.shape);
    if (view.numel() > 0) copy(view, packed.view());
    add(name, packed.bytes());
  }

  // 40 digits, half for the names and half for the checksums, as torch's. Its value means nothing to a
  // reader; torch's own hash is not the same in two processes.
  std::uint64_t finish() {
    const ByteSpan crcs{reinterpret_cast<const std::byte*>(crcs_.data()),
                        crcs_.size() * sizeof(std::uint32_t)};
    const std::string id = fmt::format("{:020}{:020}", xxh3_64(as_bytes(names_)), xxh3_64(crcs));
    zip_.add(".data/serialization_id", as_bytes(id));
    return zip_.finish();
  }

 private:
  ZipWriter zip_;
  std::string names_;
  std::vector<std::uint32_t> crcs_;
};

}  // namespace

std::uint64_t write_torch_file(ByteSink& sink, const Value& root, const TorchWriteOptions& options) {
  const TorchStorages plan = plan_storages(root);
  const std::string program = write_pickle(root, plan);
  const std::string alignment = std::to_string(options.alignment);
  Archive archive(sink, options);
  archive.add("data.pkl", as_bytes(program));
  archive.add(".format_version", as_bytes("1"));
  archive.add(".storage_alignment", as_bytes(alignment));
  archive.add("byteorder", as_bytes("little"));
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    archive.add("data/" + std::to_string(i), plan.storages[i]);
  }
  archive.add("version", as_bytes("3\n"));
  return archive.finish();
}

}  // namespace cairn
