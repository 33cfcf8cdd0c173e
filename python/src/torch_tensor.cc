// Tensors and plain data of Python, as the engine sees them. Nothing here links to torch: what is asked of a
// tensor are attributes, by names that are made once.
#include <array>
#include <utility>

#include "state.h"

namespace cairn::python {
namespace {

constexpr int kDeepest = 32;

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
    PyObject* value = PyObject_CallMethodNoArgs(object.ptr(), name_);
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

std::optional<List> plain_items(nb::handle items, int depth) {
  List list;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    auto value = plain_value(PySequence_Fast_GET_ITEM(items.ptr(), i), depth + 1);
    if (!value) return std::nullopt;
    list.push_back(std::move(*value));
  }
  return list;
}

std::optional<Value> plain_dict(nb::handle dict, int depth) {
  Dict made;
  PyObject *key = nullptr, *item = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict.ptr(), &at, &key, &item) != 0) {
    auto name = plain_key(key);
    auto value = plain_value(item, depth + 1);
    if (!name || !value) return std::nullopt;
    made.set(std::move(*name), std::move(*value));
  }
  return Value(std::move(made));
}

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

std::optional<Value> plain_value(nb::handle object, int depth) {
  PyObject* p = object.ptr();
  if (depth > kDeepest) return std::nullopt;
  if (p == Py_None) return Value(None{});
  if (PyBool_Check(p)) return Value(p == Py_True);
  if (PyLong_CheckExact(p)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(p, &overflow);
    return overflow == 0 ? std::optional(Value(std::int64_t{number})) : std::nullopt;
  }
  if (PyFloat_CheckExact(p)) return Value(PyFloat_AS_DOUBLE(p));
  if (PyUnicode_CheckExact(p)) {
    Py_ssize_t size = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(p, &size);
    if (utf8 != nullptr) return Value(std::string(utf8, static_cast<std::size_t>(size)));
    PyErr_Clear();  // lone surrogates
    return std::nullopt;
  }
  if (PyBytes_CheckExact(p)) return Value(Bytes{std::string(bytes_of(object))});
  if (PyList_CheckExact(p)) {
    auto items = plain_items(object, depth);
    return items ? std::optional(Value(std::move(*items))) : std::nullopt;
  }
  if (PyTuple_CheckExact(p)) {
    auto items = plain_items(object, depth);
    return items ? std::optional(Value(Tuple{std::move(*items)})) : std::nullopt;
  }
  if (PyDict_CheckExact(p)) return plain_dict(object, depth);
  return std::nullopt;
}

}  // namespace cairn::python
