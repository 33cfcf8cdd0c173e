#include "plans.h"

#include <iterator>
#include <utility>

#include "cairn/error.h"

namespace cairn::python {
namespace {

constexpr std::int64_t kMostSmallBytes = 64U
                                         << 10;  // of a tensor that waits for others, to be loaded with them
constexpr std::size_t kMostFilled = 64;          // of these

// An attribute of a module, kept for good.
nb::handle known(const char* module, const char* name) {
  return nb::object(nb::module_::import_(module).attr(name)).release();
}

nb::handle planner_class(const char* name) { return known("torch.distributed.checkpoint.planner", name); }

MetadataIndex to_index(nb::handle index) {
  MetadataIndex made{to_text(index.attr("fqn")), std::nullopt, std::nullopt};
  const nb::object offset = index.attr("offset");
  if (!offset.is_none()) made.offset = to_shape(offset);
  return made;
}

// Types that the engine does not know are Python's to encode, and only their size counts.
DType to_element_type(nb::handle dtype) {
  const std::string name = nb::cast<std::string>(nb::str(dtype));
  constexpr std::string_view kPrefix = "torch.";
  return dtype_from_name(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name)
      .value_or(DType::kUInt8);
}

WriteItem to_write_item(nb::handle item, std::int64_t position) {
  WriteItem made;
  made.index = to_index(item.attr("index"));
  made.index.index = position;
  made.type = static_cast<WriteItemType>(nb::cast<int>(item.attr("type").attr("value")));
  const nb::object data = item.attr("tensor_data");
  if (made.type == WriteItemType::kByteIO || data.is_none()) return made;
  const nb::object chunk = data.attr("chunk");
  made.tensor_data.emplace();
  made.tensor_data->properties.dtype = to_element_type(data.attr("properties").attr("dtype"));
  made.tensor_data->size = to_shape(data.attr("size"));
  made.tensor_data->chunk = {to_shape(chunk.attr("offsets")), to_shape(chunk.attr("sizes"))};
  return made;
}

ReadItem to_read_item_of(nb::handle item, std::int64_t position) {
  static const nb::handle bytes = planner_class("LoadItemType").attr("BYTE_IO").inc_ref();
  ReadItem made;
  made.type = item.attr("type").is(bytes) ? LoadItemType::kByteIO : LoadItemType::kTensor;
  made.dest_index = to_index(item.attr("dest_index"));
  made.dest_index.index = position;
  made.dest_offsets = to_shape(item.attr("dest_offsets"));
  made.storage_index = to_index(item.attr("storage_index"));
  made.storage_offsets = to_shape(item.attr("storage_offsets"));
  made.lengths = to_shape(item.attr("lengths"));
  return made;
}

nb::object memory_like(nb::handle tensor, const char* device) {
  static const nb::handle empty = known("torch", "empty");
  nb::object where = device == nullptr ? nb::object(nb::none()) : nb::object(nb::str(device));
  return empty(tensor.attr("shape"), nb::arg("dtype") = tensor.attr("dtype"), nb::arg("device") = where);
}

bool is_bytes_io(nb::handle object) {
  static const nb::handle type = known("io", "BytesIO");
  const int is = PyObject_IsInstance(object.ptr(), type.ptr());
  if (is < 0) throw nb::python_error();
  return is != 0;
}

}  // namespace

Tensor lasting_tensor(nb::object tensor, const LastingMemory& lasting) {
  std::optional<Tensor> plain = plain_tensor(tensor);
  if (!lasting.has(plain.value().view())) {
    tensor = tensor.attr("clone")();
    plain = plain_tensor(tensor);
  }
  return Tensor(plain.value().view(), owner_of(std::move(tensor)));
}

std::vector<Resolved> ask_together(Caller* caller, std::span<const WriteItem> items,
                                   const std::function<Resolved(const WriteItem&)>& ask) {
  std::vector<Resolved> made;
  const auto ask_all = [&] {
    for (const WriteItem& item : items) made.push_back(ask(item));
  };
  try {
    if (caller != nullptr) {
      caller->call(ask_all);
    } else {
      with_python(ask_all);
    }
  } catch (Error& e) {
    if (made.size() < items.size()) e.of_tensor(items[made.size()].index.fqn);
    throw;
  }
  return made;
}

HookedItems::HookedItems(nb::list items, nb::handle planner, nb::handle encode, Caller& caller)
    : items_(std::move(items)), planner_(planner), encode_(encode), caller_(caller) {
  std::int64_t position = 0;
  for (nb::handle item : items_) plan_.items.push_back(to_write_item(item, position++));
  const nb::object state = nb::getattr(planner, "state_dict", nb::none());
  if (!PyDict_Check(state.ptr())) return;
  for (const auto& [name, value] : nb::cast<nb::dict>(state)) {
    if (const std::optional<Tensor> plain = plain_tensor(value)) {
      lasting_.add(plain);
    } else if (nb::hasattr(value, "_local_tensor")) {  // a DTensor
      lasting_.add(plain_tensor(value.attr("_local_tensor")));
    } else if (nb::hasattr(value, "local_shards")) {
      for (nb::handle shard : value.attr("local_shards")()) lasting_.add(plain_tensor(shard.attr("tensor")));
    }
  }
}

// In the caller's thread.
Resolved HookedItems::ask(const WriteItem& item) {
  const nb::handle theirs = items_[static_cast<std::size_t>(item.index.index.value())];
  nb::object made = planner_.attr("resolve_data")(theirs);
  if (is_bytes_io(made)) return {std::string(bytes_of(nb::object(made.attr("getvalue")()))), std::nullopt};
  made = made.attr("detach")();
  const std::optional<Tensor> plain = plain_tensor(made);
  const bool as_planned = plain && item.tensor_data && plain->view().shape == item.tensor_data->chunk.sizes &&
                          plain->view().dtype == item.tensor_data->properties.dtype;
  if (!as_planned) {
    made = encode_(theirs, made);
    if (PyBytes_Check(made.ptr())) return {std::string(bytes_of(made)), std::nullopt};
  }
  return {std::nullopt, lasting_tensor(std::move(made), lasting_)};
}

void HookedItems::expect(std::span<const WriteItem> items) {
  std::vector<Resolved> made =
      ask_together(&caller_, items, [&](const WriteItem& item) { return ask(item); });
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < made.size(); ++i)
    made_.insert_or_assign(items[i].index.index.value(), std::move(made[i]));
}

std::optional<std::string> HookedItems::resolve_archive(const WriteItem& item) {
  const auto known = [&] {
    const std::lock_guard lock(mutex_);
    return made_.contains(item.index.index.value());
  };
  if (!known()) expect({&item, 1});
  const std::lock_guard lock(mutex_);
  const auto made = made_.find(item.index.index.value());
  return made->second.archive ? std::move(made_.extract(made).mapped().archive) : std::nullopt;
}

Value HookedItems::resolve_data(const WriteItem& item) {
  const std::lock_guard lock(mutex_);
  return std::move(made_.extract(item.index.index.value()).mapped().tensor.value());
}

nb::list HookedItems::results_of(const WrittenData& data) const {
  const WithoutCollector pause;
  static const nb::handle result_class = known("torch.distributed.checkpoint.storage", "WriteResult");
  static const nb::handle info_class = known("torch.distributed.checkpoint.filesystem", "_StorageInfo");
  std::vector<nb::object> results(nb::len(items_));
  for (const WriteResult& each : data.results) {
    const StorageInfo& info = each.storage_data;
    nb::object transforms = nb::none();
    if (!info.transform_descriptors.empty()) {
      nb::list names;
      for (const std::string& name : info.transform_descriptors) names.append(to_str(name));
      transforms = names;
    }
    const auto position = static_cast<std::size_t>(each.index.index.value());
    results[position] =
        result_class(items_[position].attr("index"), info.length,
                     info_class(to_str(info.relative_path), info.offset, info.length, transforms));
  }
  nb::list ordered;
  for (const nb::object& result : results)
    if (result.is_valid()) ordered.append(result);
  return ordered;
}

HookedDestinations::HookedDestinations(nb::list items, nb::handle planner, const Metadata* known,
                                       Caller& caller)
    : items_(std::move(items)), planner_(planner), caller_(caller) {
  std::unordered_map<std::string_view, DType> types;
  if (known != nullptr) {
    for (const auto& [fqn, entry] : known->state_dict_metadata)
      if (const auto* tensor = std::get_if<TensorStorageMetadata>(&entry))
        types.emplace(fqn, tensor->properties.dtype);
  }
  for (nb::handle theirs : items_) {
    const ReadItem& item =
        plan_.items.emplace_back(to_read_item_of(theirs, static_cast<std::int64_t>(plan_.items.size())));
    const auto type = types.find(item.storage_index.fqn);
    const bool is_small = type != types.end() && Box{item.storage_offsets, item.lengths}.volume() *
                                                         static_cast<std::int64_t>(item_size(type->second)) <=
                                                     kMostSmallBytes;
    small_types_.push_back(is_small ? std::optional(type->second) : std::nullopt);
  }
}

bool HookedDestinations::lie_at(const Metadata& known, nb::handle places) const {
  const StorageData& ours = known.storage_data;
  for (std::size_t i = 0; i < plan_.items.size(); ++i) {
    const nb::object theirs = places[items_[i].attr("storage_index")];
    const MetadataIndex& index = plan_.items[i].storage_index;
    const auto at = ours.find(index.fqn, index.offset ? &*index.offset : nullptr);
    if (!at || nb::cast<std::int64_t>(theirs.attr("offset")) != ours.offset(*at) ||
        nb::cast<std::int64_t>(theirs.attr("length")) != ours.length(*at) ||
        to_text(theirs.attr("relative_path")) != ours.files()[ours.file_id(*at)])
      return false;
  }
  return true;
}

std::string* HookedDestinations::resolve_bytes(const ReadItem& item) {
  const std::lock_guard lock(mutex_);
  return &archives_[item.dest_index.index.value()];
}

// As torch's own reader: what torch.load makes of it, cut where it is larger than the item, into the
// planner's tensor.
bool HookedDestinations::load_archive(const ReadItem& item, std::string_view archive) {
  caller_.call([&] {
    static const nb::handle stream = known("io", "BytesIO"), load = known("torch", "load");
    const nb::handle theirs = items_[static_cast<std::size_t>(item.dest_index.index.value())];
    nb::object tensor =
        load(stream(to_bytes(archive)), nb::arg("map_location") = "cpu", nb::arg("weights_only") = true);
    for (std::size_t i = 0; i < item.lengths.rank(); ++i)  // a class of its own may know no narrow
      if (nb::cast<std::int64_t>(tensor.attr("size")(i)) != item.lengths[i])
        tensor = tensor.attr("narrow")(i, item.storage_offsets[i], item.lengths[i]);
    const nb::object target = planner_.attr("resolve_tensor")(theirs).attr("detach")();
    target.attr("copy_")(tensor);
    planner_.attr("commit_tensor")(theirs, target);
  });
  return true;
}

// This one and the next two in the caller's thread.
nb::object HookedDestinations::ask(std::int64_t position) {
  const nb::handle theirs = items_[static_cast<std::size_t>(position)];
  nb::object tensor = planner_.attr("resolve_tensor")(theirs).attr("detach")();
  if (tensor.attr("size")().equal(theirs.attr("lengths"))) return tensor;
  const nb::object text =
      nb::str("req {} mismatch sizes {} vs {}")
          .attr("format")(theirs.attr("storage_index"), tensor.attr("size")(), theirs.attr("lengths"));
  PyErr_SetObject(PyExc_AssertionError, text.ptr());
  throw nb::python_error();
}

void HookedDestinations::bring(std::int64_t position, const Tensor& filled) {
  const nb::object tensor = ask(position);
  std::optional<Tensor> plain = plain_tensor(tensor);
  if (plain && plain->view().device.is_cpu()) {
    copy(filled.view(), plain->view());
  } else {
    const nb::object memory = memory_like(tensor, "cpu");
    copy(filled.view(), plain_tensor(memory).value().view());
    tensor.attr("copy_")(memory);
  }
  planner_.attr("commit_tensor")(items_[static_cast<std::size_t>(position)], tensor);
}

// `at` is the position that it has come to.
void HookedDestinations::bring_filled(std::int64_t& at) {
  std::vector<std::pair<std::int64_t, Tensor>> filled;
  {
    const std::lock_guard lock(mutex_);
    filled.swap(filled_);
  }
  for (const auto& [position, tensor] : filled) bring(at = position, tensor);
}

TensorView HookedDestinations::resolve_tensor(const ReadItem& item) {
  const std::int64_t position = item.dest_index.index.value();
  if (const std::optional<DType> dtype = small_types_[static_cast<std::size_t>(position)]) {
    Tensor memory = Tensor::empty(*dtype, item.lengths);
    const TensorView view = memory.view();
    const std::lock_guard lock(mutex_);
    small_.insert_or_assign(position, std::move(memory));
    return view;
  }
  TensorView view;
  caller_.call([&] {
    Target target;
    target.tensor = target.memory = ask(position);
    std::optional<Tensor> plain = plain_tensor(target.memory);
    if (!plain) {
      target.memory = memory_like(target.tensor, nullptr);
      plain = plain_tensor(target.memory);
    }
    view = plain.value().view();
    const std::lock_guard lock(mutex_);
    targets_.insert_or_assign(position, std::move(target));
  });
  return view;
}

void HookedDestinations::commit_tensor(const ReadItem& item, const TensorView&) {
  std::int64_t at = item.dest_index.index.value();
  bool is_small = false, bring_them = false;
  {
    const std::lock_guard lock(mutex_);
    if (const auto small = small_.find(at); small != small_.end()) {
      filled_.emplace_back(at, std::move(small_.extract(small).mapped()));
      is_small = true;
      bring_them = filled_.size() >= kMostFilled;
    }
  }
  if (is_small && !bring_them) return;
  try {
    caller_.call([&] {
      if (is_small) return bring_filled(at);
      const Target target = [&] {
        const std::lock_guard lock(mutex_);
        return std::move(targets_.extract(at).mapped());
      }();
      if (!target.memory.is(target.tensor)) target.tensor.attr("copy_")(target.memory);
      planner_.attr("commit_tensor")(items_[static_cast<std::size_t>(at)], target.tensor);
    });
  } catch (Error& e) {
    e.of_tensor(plan_.items[static_cast<std::size_t>(at)].storage_index.fqn);
    throw;
  }
}

void HookedDestinations::finish() {
  static const nb::handle stream = known("io", "BytesIO");
  std::int64_t at = 0;
  bring_filled(at);
  for (std::size_t i = 0; i < plan_.items.size(); ++i) {
    if (plan_.items[i].type != LoadItemType::kByteIO) continue;
    const std::string archive = std::move(archives_[static_cast<std::int64_t>(i)]);
    planner_.attr("load_bytes")(items_[i], stream(to_bytes(archive)));
  }
}

}  // namespace cairn::python
