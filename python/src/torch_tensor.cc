// Tensors and plain data of Python, as the engine sees them. Nothing here links to torch: what is asked of a
// tensor are attributes, by names that are made once.
#include <unordered_set>
#include <utility>

#include "state.h"

namespace cairn::python {
namespace {

constexpr int kDeepestTensor = 32;
constexpr std::size_t kMostRepeated = 10'000;  // values written out a second time

// Strings and types that are looked up for every tensor; made at first use and kept for ever.
struct Torch {
  nb::object tensor_base, tensor, parameter, strided;
  std::unordered_map<const PyObject*, DType> dtypes;

  Torch() {
    const nb::module_ torch = nb::module_::import_("torch");
    tensor_base = torch.attr("_C").attr("TensorBase");
    tensor = torch.attr("Tensor");
    parameter = torch.attr("nn").attr("Parameter");
    strided = torch.attr("strided");
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      const std::string name(name_of(dtype));
      if (nb::hasattr(torch, name.c_str())) dtypes[torch.attr(name.c_str()).ptr()] = dtype;
    }
  }
};

Torch& torch() {
  static Torch* made = new Torch;  // outlives the interpreter's end
  return *made;
}

// False, and no exception, where torch was never imported: then nothing is a tensor.
bool torch_is_there() {
  static bool there = false;
  if (!there) there = PyDict_GetItemString(PyImport_GetModuleDict(), "torch") != nullptr;
  return there;
}

class Name {
 public:
  explicit Name(const char* text) : name_(PyUnicode_InternFromString(text)) {}
  nb::object of(nb::handle object) const {
    PyObject* value = PyObject_GetAttr(object.ptr(), name_);
    if (value == nullptr) throw nb::python_error();
    return nb::steal(value);
  }
  nb::object call(nb::handle object) const {
    PyObject* value = PyObject_CallMethodObjArgs(object.ptr(), name_, nullptr);
    if (value == nullptr) throw nb::python_error();
    return nb::steal(value);
  }

 private:
  PyObject* name_;
};

struct Names {
  Name is_cpu{"is_cpu"}, is_cuda{"is_cuda"}, get_device{"get_device"}, layout{"layout"}, dtype{"dtype"},
      shape{"shape"}, stride{"stride"}, is_neg{"is_neg"}, is_conj{"is_conj"}, data_ptr{"data_ptr"};
};

const Names& names() {
  static const Names* made = new Names;
  return *made;
}

std::optional<Key> plain_key(nb::handle key) {
  if (PyUnicode_CheckExact(key.ptr())) return Key(to_text(key));
  if (!PyLong_CheckExact(key.ptr())) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(key.ptr(), &overflow);
  if (overflow != 0) return std::nullopt;
  return Key(std::int64_t{number});
}

// Makes Values of plain data, and gives up on data that would be far larger as a Value than it is in Python,
// because it holds the same parts again and again.
class PlainData {
 public:
  std::optional<Value> value(nb::handle object, int depth) {
    PyObject* p = object.ptr();
    if (depth > kDeepestTensor || (repeats_ > 0 && ++repeated_ > kMostRepeated)) return std::nullopt;
    if (p == Py_None) return Value(None{});
    if (PyBool_Check(p)) return Value(p == Py_True);
    if (PyLong_CheckExact(p)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(p, &overflow);
      return overflow == 0 ? std::optional(Value(std::int64_t{number})) : std::nullopt;
    }
    if (PyFloat_CheckExact(p)) return Value(PyFloat_AsDouble(p));
    if (PyUnicode_CheckExact(p)) return text(p);
    if (PyBytes_CheckExact(p)) return Value(Bytes{std::string(bytes_of(object))});
    if (!PyList_CheckExact(p) && !PyTuple_CheckExact(p) && !PyDict_CheckExact(p)) return std::nullopt;
    const bool again = !seen_.insert(p).second;
    repeats_ += again ? 1 : 0;
    std::optional<Value> made = PyDict_CheckExact(p) ? dict(object, depth) : items(object, depth);
    repeats_ -= again ? 1 : 0;
    return made;
  }

 private:
  static std::optional<Value> text(PyObject* p) {
    Py_ssize_t size = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(p, &size);
    if (utf8 != nullptr) return Value(std::string(utf8, static_cast<std::size_t>(size)));
    PyErr_Clear();  // lone surrogates
    return std::nullopt;
  }

  std::optional<Value> items(nb::handle from, int depth) {
    List list;
    for (Py_ssize_t i = 0; i < PySequence_Size(from.ptr()); ++i) {
      const nb::object element = nb::steal(PySequence_GetItem(from.ptr(), i));
      if (!element.is_valid()) throw nb::python_error();
      auto item = value(element, depth + 1);
      if (!item) return std::nullopt;
      list.push_back(std::move(*item));
    }
    return PyList_CheckExact(from.ptr()) ? Value(std::move(list)) : Value(Tuple{std::move(list)});
  }

  std::optional<Value> dict(nb::handle from, int depth) {
    Dict made;
    PyObject *key = nullptr, *item = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(from.ptr(), &at, &key, &item) != 0) {
      auto name = plain_key(key);
      auto inner = value(item, depth + 1);
      if (!name || !inner) return std::nullopt;
      made.set(std::move(*name), std::move(*inner));
    }
    return Value(std::move(made));
  }

  std::unordered_set<PyObject*> seen_;  // containers
  int repeats_ = 0;                     // how many of those around the walk were seen before
  std::size_t repeated_ = 0;
};

}  // namespace

bool is_tensor(nb::handle object) {
  return torch_is_there() && PyType_IsSubtype(Py_TYPE(object.ptr()), reinterpret_cast<PyTypeObject*>(
                                                                         torch().tensor_base.ptr())) != 0;
}

std::optional<Tensor> plain_tensor(nb::handle tensor) {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr()));
  if (type != torch().tensor.ptr() && type != torch().parameter.ptr()) return std::nullopt;
  const Names& name = names();
  const bool on_cpu = name.is_cpu.of(tensor).is(Py_True);
  if (!on_cpu && !name.is_cuda.of(tensor).is(Py_True)) return std::nullopt;
  if (!name.layout.of(tensor).is(torch().strided)) return std::nullopt;
  const auto dtype = torch().dtypes.find(name.dtype.of(tensor).ptr());
  if (dtype == torch().dtypes.end() || !name.is_neg.call(tensor).is(Py_False)) return std::nullopt;
  const bool is_complex = name_of(dtype->second).starts_with("complex");
  if (is_complex && !name.is_conj.call(tensor).is(Py_False)) return std::nullopt;
  TensorView view;
  view.dtype = dtype->second;
  view.shape = to_shape(name.shape.of(tensor));
  view.strides = to_shape(name.stride.call(tensor));
  view.data = reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(name.data_ptr.call(tensor)));
  if (!on_cpu) view.device = {Device::Kind::kCuda, nb::cast<int>(name.get_device.call(tensor))};
  return Tensor(std::move(view), nullptr);
}

std::optional<Value> plain_value(nb::handle object) { return PlainData().value(object, 0); }

}  // namespace cairn::python
