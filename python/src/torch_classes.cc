#include "torch_classes.h"

#include <algorithm>
#include <array>
#include <string>

namespace cairn::python {
namespace {

// Where torch's dataclasses and enums for descriptions are.
constexpr const char* kTorchs = "torch.distributed.checkpoint.";
constexpr std::array kModules = {"metadata", "planner", "storage", "filesystem", "_hf_utils"};

nb::handle as_handle(PyTypeObject& type) { return reinterpret_cast<PyObject*>(&type); }

// An attribute of a type by its own descriptor, past whatever a metaclass says.
nb::object of_type(nb::handle type, const char* name) {
  return as_handle(PyType_Type).attr("__dict__")[name].attr("__get__")(type);
}

bool has_own(nb::handle type, const char* name) {
  return PyMapping_HasKeyString(of_type(type, "__dict__").ptr(), name) != 0;
}

bool is_subtype(nb::handle type, nb::handle base) {
  return PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()),
                          reinterpret_cast<PyTypeObject*>(base.ptr())) != 0;
}

// The names in a module that is imported; null for one that is not.
nb::handle names_in(std::string_view module) {
  const nb::handle found = find_in(PyImport_GetModuleDict(), module);
  return found.is_valid() && PyModule_Check(found.ptr()) ? PyModule_GetDict(found.ptr()) : nullptr;
}

}  // namespace

nb::handle find_in(nb::handle dict, std::string_view key) {
  PyObject* found = PyDict_GetItemWithError(dict.ptr(), to_str(key).ptr());
  PyErr_Clear();
  return found;
}

nb::object find_global(std::string_view module, std::string_view name) {
  const nb::handle names = names_in(module);
  if (!names.is_valid()) return {};
  const std::size_t dot = std::min(name.find('.'), name.size());
  nb::object found = nb::borrow(find_in(names, name.substr(0, dot)));
  for (std::size_t at = dot; found.is_valid() && at < name.size();) {
    const std::size_t end = std::min(name.find('.', at + 1), name.size());
    const std::string step(name.substr(at + 1, end - at - 1));
    if (!PyType_Check(found.ptr()) || !has_own(found, step.c_str())) return {};
    found = of_type(found, "__dict__")[step.c_str()];
    at = end;
  }
  return found;
}

bool is_torch_constant(nb::handle value) {
  const nb::handle type = value.type();
  return type.is(find_torchs("dtype")) || type.is(find_torchs("layout")) ||
         type.is(find_torchs("memory_format"));
}

nb::dict attributes_of(nb::handle object) {
  PyObject* dict = PyObject_GenericGetDict(object.ptr(), nullptr);
  if (dict == nullptr) throw nb::python_error();
  return nb::steal<nb::dict>(dict);
}

TorchClasses::TorchClasses() {
  for (const char* each : kModules) {
    const std::string module = std::string(kTorchs) + each;
    if (const nb::handle names = names_in(module); names.is_valid())
      for (const auto& [name, value] : nb::borrow<nb::dict>(names)) note(module, value);
  }
}

// Not what the module has from elsewhere.
void TorchClasses::note(const std::string& module, nb::handle value) {
  if (!PyType_Check(value.ptr()) || !has_own(value, "__module__")) return;
  if (!of_type(value, "__dict__")["__module__"].equal(to_str(module))) return;
  if (has_own(value, "__dataclass_fields__")) dataclasses_.push_back(nb::borrow(value));
  if (has_own(value, "_value2member_map_")) enums_.push_back(nb::borrow(value));
}

bool TorchClasses::is_one_of(const std::vector<nb::object>& types, nb::handle type) {
  return std::any_of(types.begin(), types.end(), [&](const nb::object& each) { return each.is(type); });
}

bool TorchClasses::is_derived(nb::handle type) const {
  if (!type.is_valid() || !PyType_Check(type.ptr())) return false;
  const bool derived = std::any_of(dataclasses_.begin(), dataclasses_.end(),
                                   [&](const nb::object& each) { return is_subtype(type, each); });
  if (!derived) return false;
  for (nb::handle each : of_type(type, "__mro__"))
    if (!is_dataclass(each) && (has_own(each, "__setstate__") || has_own(each, "__del__"))) return false;
  return true;
}

bool TorchClasses::is_tensor_properties(nb::handle type) const {
  const nb::object own = find_global(std::string(kTorchs) + "metadata", "TensorProperties");
  return is_dataclass(own) && is_subtype(type, own);
}

nb::object TorchClasses::member_of(nb::handle enumeration, nb::handle value) {
  const nb::object members = of_type(enumeration, "__dict__")["_value2member_map_"];
  PyObject* member = PyDict_GetItemWithError(members.ptr(), value.ptr());
  PyErr_Clear();
  return nb::borrow(member);
}

}  // namespace cairn::python
