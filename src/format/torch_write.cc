#include <string>
#include <utility>

#include "format/pickle_writer.h"
#include "format/torch_archive.h"
#include "format/torch_file.h"
#include "format/torch_storages.h"

namespace cairn {
namespace {

void write_tensor(pickle::Writer& w, const TorchStorages& plan, const Value& value) {
  const PlannedTensor& tensor = plan.tensors.at(&value);
  const PlannedStorage& storage = plan.storages[tensor.storage];
  const TensorView& view = value.get<Tensor>().view();
  write_torch_tensor(w, view.dtype, view.shape, tensor.strides, tensor.offset,
                     {storage.dtype, storage.bytes, std::to_string(tensor.storage)});
}

std::string write_pickle(const Value& root, const TorchStorages& plan) {
  StringSink sink;
  pickle::Writer w(sink, 2);
  w.value(root, [&](pickle::Writer& writer, const Value& value) { write_tensor(writer, plan, value); });
  w.finish();
  return std::move(sink.text);
}

void add_storage(TorchArchive& archive, const std::string& name, const PlannedStorage& storage) {
  if (storage.gather == nullptr) return archive.add(name, storage.memory);
  const TensorView& view = storage.gather->view();
  const Tensor packed = Tensor::empty(view.dtype, view.shape);
  if (view.numel() > 0) copy(view, packed.view());
  archive.add(name, packed.bytes());
}

}  // namespace

std::uint64_t write_torch_file(ByteSink& sink, const Value& root, const TorchWriteOptions& options) {
  const TorchStorages plan = plan_storages(root);
  TorchArchive archive(sink, options.archive_name, options.alignment);
  archive.add_head(write_pickle(root, plan));
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    add_storage(archive, "data/" + std::to_string(i), plan.storages[i]);
  }
  return archive.finish();
}

}  // namespace cairn
