#include "state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cairn/error.h"

namespace cairn::python {
namespace {

bool is_mapping(nb::handle value) {
  if (PyDict_Check(value.ptr())) return true;
  static PyObject* abc = nb::object(nb::module_::import_("collections.abc").attr("Mapping")).release().ptr();
  // The commonest things that are none, without asking.
  if (value.is_none() || PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr()) ||
      PyUnicode_Check(value.ptr()) || PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()) ||
      is_tensor(value))
    return false;
  const int is = PyObject_IsInstance(value.ptr(), abc);
  if (is < 0) throw nb::python_error();
  return is != 0;
}

// Calls f with every key and value, in order.
template <class F> void for_each_item(nb::handle mapping, const F& f) {
  if (PyDict_CheckExact(mapping.ptr())) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(mapping.ptr(), &at, &key, &value) != 0) f(nb::borrow(key), nb::borrow(value));
    return;
  }
  for (nb::handle item : mapping.attr("items")()) f(nb::borrow(item[0]), nb::borrow(item[1]));
}

// One level deeper into a state: at Python's own limit it is a RecursionError, as it is in Python.
class Level {
 public:
  Level() {
    if (Py_EnterRecursiveCall(" in a state that is nested too deeply; does it hold itself?") != 0)
      throw nb::python_error();
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { Py_LeaveRecursiveCall(); }
};

// Whether a tensor, or with `mappings` a mapping, is somewhere in it: through lists, and through mappings
// when those alone do not count.
bool holds_tensor(nb::handle value, bool mappings) {
  if (is_tensor(value)) return true;
  const Level level;
  if (is_mapping(value)) {
    if (mappings) return true;
    bool found = false;
    for_each_item(value, [&](const nb::object&, const nb::object& item) {
      found = found || holds_tensor(item, mappings);
    });
    return found;
  }
  if (!PyList_Check(value.ptr())) return false;
  for (Py_ssize_t i = 0; i < PyList_Size(value.ptr()); ++i)
    if (holds_tensor(PyList_GetItem(value.ptr(), i), mappings)) return true;
  return false;
}

// From a tensor's first byte to behind its last.
std::pair<const std::byte*, const std::byte*> extent_of(const TensorView& tensor) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.rank(); ++i) {
    if (tensor.shape[i] == 0) return {tensor.data, tensor.data};
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return {tensor.data, tensor.data + (last + 1) * static_cast<std::int64_t>(item_size(tensor.dtype))};
}

}  // namespace

void LastingMemory::add(const std::optional<Tensor>& tensor) {
  if (!tensor) return;
  const auto [begin, end] = extent_of(tensor->view());
  const std::byte*& known = parts_[begin];
  known = std::max(known, end);
}

bool LastingMemory::has(const TensorView& tensor) const {
  const auto [begin, end] = extent_of(tensor);
  const auto after = parts_.upper_bound(begin);
  return after != parts_.begin() && end <= std::prev(after)->second;
}

TorchState::TorchState(nb::dict state, Describer describe, bool flatten, FlattenRule rule)
    : state_(std::move(state)), describe_(std::move(describe)), flatten_(flatten), rule_(rule) {
  for_each_item(state_, [&](const nb::object& key, const nb::object& value) {
    path_ = {Key(to_text(nb::str(key)))};
    if (flatten_) {
      walk(value, state_, key);
    } else {
      add(value, state_, key);
    }
  });
}

bool TorchState::is_terminal(nb::handle value) const {
  if (rule_ == FlattenRule::kTorch23)
    return !((is_mapping(value) || PyList_Check(value.ptr())) && holds_tensor(value, false));
  if (is_mapping(value)) return PyObject_Size(value.ptr()) == 0;
  return !(PyList_Check(value.ptr()) && holds_tensor(value, true));
}

void TorchState::walk(nb::handle value, nb::handle parent, nb::handle key) {
  const Level level;
  if (is_terminal(value)) return add(value, parent, key);
  if (PyList_Check(value.ptr())) {
    for (Py_ssize_t i = 0; i < PyList_Size(value.ptr()); ++i) {
      path_.emplace_back(std::int64_t{i});
      walk(PyList_GetItem(value.ptr(), i), value, nb::int_(i));
      path_.pop_back();
    }
    return;
  }
  for_each_item(value, [&](const nb::object& inner, const nb::object& item) {
    // A string of a class of its own (an Enum) is called what str() says, as in torch.
    path_.emplace_back(to_text(PyUnicode_CheckExact(inner.ptr()) ? inner : nb::str(inner)));
    walk(item, value, inner);
    path_.pop_back();
  });
}

void TorchState::add(nb::handle value, nb::handle parent, nb::handle key) {
  if (is_tensor(value)) {
    if (auto tensor = plain_tensor(value)) {
      keep(value);
      return add_entry(std::move(*tensor), parent, key);
    }
    const nb::object described = describe_.of_tensor(value, to_str(join(path_)));
    if (add_described(described, parent, key)) return;
  } else if (auto plain = plain_value(value)) {
    return add_entry(std::move(*plain), parent, key);
  } else if (!describe_.of_object.is_none()) {
    const nb::object described = describe_.of_object(value, to_str(join(path_)));
    if (add_described(described, parent, key)) return;
  }
  objects_.emplace(join(path_), nb::borrow(value));
  add_entry(None{}, parent, key);
}

// (size, [(offsets, sizes, tensor, encoded by Python), ...]): pieces of a tensor. None: an object. False:
// nothing of it is here.
bool TorchState::add_described(nb::handle described, nb::handle parent, nb::handle key) {
  if (described.is_none()) return false;
  if (described.is(Py_False)) return true;
  ShardedTensor sharded;
  sharded.global_shape = to_shape(described[0]);
  for (nb::handle piece : described[1]) {
    auto tensor = plain_tensor(piece[2]);
    if (!tensor) {
      throw Error(ErrorCode::kInternal, "a piece of a tensor is described by a tensor that is not plain")
          .of_tensor(join(path_));
    }
    keep(piece[2]);
    if (const nb::object tensor_of_python = piece[3]; !tensor_of_python.is_none()) {
      pieces_[{join(path_), to_shape(piece[0]), std::nullopt}] = {to_shape(piece[1]), tensor_of_python, {}};
      cut_by_python_.insert(join(path_));
    }
    sharded.dtype = tensor->view().dtype;
    sharded.shards.push_back({{to_shape(piece[0]), to_shape(piece[1])}, std::move(*tensor)});
  }
  const bool whole = PyObject_Size(described.ptr()) == 2 && sharded.shards.size() == 1 &&
                     sharded.shards[0].box == Box::whole(sharded.global_shape);
  if (whole) {
    add_entry(std::move(sharded.shards[0].data), parent, key);
  } else {
    add_entry(std::move(sharded), parent, key);
  }
  return true;
}

void TorchState::add_entry(Value value, nb::handle parent, nb::handle key) {
  const std::string name = join(path_);
  if (!positions_.emplace(name, paths_.size()).second)
    throw nb::value_error(("duplicated flatten key " + name).c_str());
  flat_.set(name, std::move(value));
  paths_.push_back(path_);
  places_.push_back({nb::borrow(parent), nb::borrow(key)});
}

Flattened TorchState::entries(const StateDict& values) const {
  Flattened entries;
  entries.reserve(paths_.size());
  std::size_t i = 0;
  for (const auto& [name, value] : values)
    entries.push_back({std::get<std::string>(name), paths_[i++], value});
  return entries;
}

const TorchState& TorchState::as_before() {
  if (before_ == nullptr)
    before_ = std::make_unique<TorchState>(state_, describe_, flatten_, FlattenRule::kTorch23);
  return *before_;
}

const nb::object* TorchState::object(std::string_view name) const {
  const auto found = objects_.find(std::string(name));
  return found == objects_.end() ? nullptr : &found->second;
}

const TorchState::Foreign* TorchState::piece(const std::string& name, const Box& box) const {
  if (!cut_by_python_.contains(name)) return nullptr;
  const auto found = pieces_.find({name, box.offsets, std::nullopt});
  if (found != pieces_.end() && found->second.sizes == box.sizes) return &found->second;
  throw Error(
      ErrorCode::kUnsupported,
      "only Python can write a piece of this tensor, and the plan cuts it further: the coordinator has "
      "no such tensor; give it one, or save with a planner of your own")
      .of_tensor(name);
}

void TorchState::freeze(nb::handle encode) {
  for (auto& [place, piece] : pieces_) piece.archive = bytes_of(encode(piece.tensor));
  for (const auto& [name, object] : objects_) archives_[name] = bytes_of(encode(object));
}

const std::string* TorchState::archive(std::string_view name) const {
  const auto found = archives_.find(std::string(name));
  return found == archives_.end() ? nullptr : &found->second;
}

void TorchState::put(std::string_view name, nb::handle value) {
  const auto found = positions_.find(std::string(name));
  if (found == positions_.end() && before_ != nullptr) return before_->put(name, value);
  if (found == positions_.end())
    throw Error(ErrorCode::kInternal, "the state has no such entry").of_tensor(name);
  const Place& place = places_[found->second];
  if (PyObject_SetItem(place.parent.ptr(), place.key.ptr(), value.ptr()) != 0) throw nb::python_error();
}

}  // namespace cairn::python
