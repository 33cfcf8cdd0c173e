#include "objects.h"

#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "cairn/pickle_view.h"
#include "torch_classes.h"
#include "values.h"

namespace cairn::python {
namespace {

using Kind = PickleView::Kind;
using Part = PickleView::Part;

class Builder {
 public:
  Builder(std::string_view pickle, std::uint32_t deepest)
      : view_(pickle), deepest_(deepest), key_visits_left_(4096 + 64 * pickle.size()) {
    const Limits limits;  // Python's objects take a few times what the graph does
    memory_left_ = 4 * (limits.memory_base + limits.memory_per_byte * pickle.size());
  }

  nb::object build() { return make(view_.root(), 0); }

 private:
  void pay(std::uint64_t bytes) {
    if (bytes > memory_left_)
      throw Error(ErrorCode::kLimit, "objects that take far more memory than their pickle");
    memory_left_ -= bytes;
  }
  [[noreturn]] void refuse(Part part) const {
    throw Error(
        ErrorCode::kUnsupported,
        "there is a " + view_.module(part) + "." + view_.name(part) +
            " in it. A description is plain data and dataclasses of torch.distributed.checkpoint, or of "
            "classes derived from them whose module is imported already and that have no __setstate__ "
            "or __del__ of their own; nothing else is made or called for one");
  }

  nb::object make(Part part, std::uint32_t depth) {
    if (depth > deepest_)
      throw Error(ErrorCode::kLimit, "objects nested deeper than " + std::to_string(deepest_));
    switch (view_.kind(part)) {
      case Kind::kNone: return nb::none();
      case Kind::kTrue: return nb::bool_(true);
      case Kind::kFalse: return nb::bool_(false);
      case Kind::kInt: return nb::int_(view_.integer(part));
      case Kind::kFloat: return nb::float_(view_.real(part));
      case Kind::kClass: return constant(part, view_.module(part) == "torch" ? view_.name(part) : "");
      default: break;
    }
    if (const auto known = made_.find(part.id); known != made_.end()) return known->second;
    pay(kNode);
    return remember(part, make_new(part, depth));
  }
  // What can be inside itself does this before it is filled.
  nb::object remember(Part part, nb::object made) { return made_.try_emplace(part.id, made).first->second; }

  nb::object make_new(Part part, std::uint32_t depth) {
    switch (view_.kind(part)) {
      case Kind::kString: pay(4 * view_.text(part).size()); return to_str(view_.text(part));
      case Kind::kBytes: pay(view_.text(part).size()); return to_bytes(view_.text(part));
      case Kind::kBigInt: return to_object(BigInt{view_.text(part)}, {}, nb::none());
      case Kind::kTuple: {
        nb::list items;
        fill_list(items, part, depth);
        return nb::tuple(items);
      }
      case Kind::kList: {
        nb::list items;
        remember(part, items);
        fill_list(items, part, depth);
        return items;
      }
      case Kind::kDict: return filled_dict(part, nb::dict(), depth);
      case Kind::kOrderedDict:
        return filled_dict(part, nb::module_::import_("collections").attr("OrderedDict")(), depth);
      case Kind::kSet: return filled_set(PySet_New(nullptr), part, depth);
      default: return view_.is_called(part) ? called(part, depth) : instance(part, depth);
    }
  }

  void fill_list(nb::list& items, Part part, std::uint32_t depth) {
    for (const Part item : view_.items(part)) {
      pay(kItem);
      items.append(make(item, depth + 1));
    }
  }

  nb::object filled_dict(Part part, nb::object dict, std::uint32_t depth) {
    remember(part, dict);
    const std::vector<Part> items = view_.items(part);
    for (std::size_t i = 0; i < items.size(); i += 2) {
      pay(3 * kItem);
      const nb::object key = make_key(items[i], depth + 1);
      if (PyObject_SetItem(dict.ptr(), key.ptr(), make(items[i + 1], depth + 1).ptr()) != 0) refuse_key();
    }
    return dict;
  }

  // A frozenset may be filled as long as nobody else knows it.
  nb::object filled_set(PyObject* set, Part items, std::uint32_t depth) {
    const nb::object made = nb::steal(set);
    for (const Part item : view_.items(items)) {
      pay(3 * kItem);
      if (PySet_Add(made.ptr(), make_key(item, depth + 1).ptr()) != 0) refuse_key();
    }
    return made;
  }

  // A key is asked for its hash: only Python's own plain data and torch's own classes may be.
  nb::object make_key(Part part, std::uint32_t depth) {
    nb::object key = make(part, depth);
    check_key(key, depth);
    return key;
  }
  void check_key(nb::handle key, std::uint32_t depth) {
    if (key_visits_left_-- == 0 || depth > deepest_)
      throw Error(ErrorCode::kLimit, "a key that is far larger than its pickle");
    PyObject* object = key.ptr();
    const nb::handle type = key.type();
    if (PyTuple_CheckExact(object) || type.is(find_torchs("Size"))) {
      for (nb::handle item : nb::borrow<nb::tuple>(key)) check_key(item, depth + 1);
    } else if (classes_.is_dataclass(type)) {
      for (const auto& [name, value] : attributes_of(key)) check_key(value, depth + 1);
    } else {
      const bool plain = key.is_none() || PyBool_Check(object) || PyLong_CheckExact(object) ||
                         PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) ||
                         PyBytes_CheckExact(object) || PyFrozenSet_CheckExact(object);
      if (!plain && !is_torch_constant(key) && !classes_.is_enum(type)) refuse_key();
    }
  }
  [[noreturn]] static void refuse_key() {
    PyErr_Clear();
    throw Error(ErrorCode::kUnsupported,
                "a key of a dict or set in it is no plain data and of no class of torch's own");
  }

  // torch.float32 and its like, by the name in torch.
  nb::object constant(Part part, std::string_view name) const {
    nb::object value = find_torchs(name);
    if (!value.is_valid() || !is_torch_constant(value)) refuse(part);
    return value;
  }

  // The few calls that only say what plain data are.
  nb::object called(Part part, std::uint32_t depth) {
    const std::string module = view_.module(part), name = view_.name(part);
    const std::vector<Part> arguments = view_.arguments(part);
    if (view_.state(part) || view_.has_items(part)) refuse(part);
    if (module == "pathlib" || module == "pathlib._local") return path(part, arguments, depth);
    if (arguments.size() > 1) refuse(part);
    const bool none = arguments.empty();
    const Kind kind = none ? Kind::kNone : view_.kind(arguments[0]);
    if (module == "builtins" && (name == "set" || name == "frozenset") && (none || kind == Kind::kList)) {
      PyObject* made = name == "set" ? PySet_New(nullptr) : PyFrozenSet_New(nullptr);
      return none ? nb::steal(made) : filled_set(made, arguments[0], depth + 2);
    }
    if (module == "builtins" && name == "bytearray" && (none || kind == Kind::kBytes)) {
      const std::string bytes = none ? "" : view_.text(arguments[0]);
      return nb::steal(PyByteArray_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    }
    if (module == "torch" && name == "Size" && kind == Kind::kTuple) {
      for (const Part dim : view_.items(arguments[0]))
        if (view_.kind(dim) != Kind::kInt) refuse(part);
      return find_torchs("Size")(make(arguments[0], depth + 2));
    }
    if (module == "torch.serialization" && name == "_get_layout" && kind == Kind::kString) {
      const std::string text = view_.text(arguments[0]);
      return constant(part, std::string_view(text).substr(text.starts_with("torch.") ? 6 : 0));
    }
    const nb::object type = find_global(module, name);
    if (!classes_.is_enum(type) || none) refuse(part);
    nb::object member = TorchClasses::member_of(type, make_key(arguments[0], depth + 2));
    if (!member.is_valid()) refuse(part);
    return member;
  }

  // As a checkpoint's id is written; its parts are strings.
  nb::object path(Part part, const std::vector<Part>& arguments, std::uint32_t depth) {
    const std::string name = view_.name(part);
    if (name != "PosixPath" && name != "PurePosixPath" && name != "PureWindowsPath") refuse(part);
    nb::list steps;
    for (const Part each : arguments) {
      if (view_.kind(each) != Kind::kString) refuse(part);
      steps.append(make(each, depth + 2));
    }
    return nb::module_::import_("pathlib").attr(name.c_str())(*steps);
  }

  nb::object instance(Part part, std::uint32_t depth) {
    const nb::object type = find_global(view_.module(part), view_.name(part));
    if (!classes_.is_derived(type) || !view_.arguments(part).empty() || view_.has_items(part)) refuse(part);
    PyObject* made =
        PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__new__", "O", type.ptr());
    if (made == nullptr) {  // derived from something that is more than attributes, or abstract
      PyErr_Clear();
      refuse(part);
    }
    nb::object object = nb::steal(made);
    remember(part, object);
    if (const std::optional<Part> state = view_.state(part)) {
      nb::dict attributes = attributes_of(object);
      if (view_.kind(*state) == Kind::kTuple) {
        fill_properties(part, type, view_.items(*state), attributes, depth);
      } else if (view_.kind(*state) == Kind::kDict) {
        fill(part, view_.items(*state), attributes, depth);
      } else {
        refuse(part);
      }
    }
    return object;
  }

  void fill(Part part, const std::vector<Part>& items, nb::dict& attributes, std::uint32_t depth) {
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (view_.kind(items[i]) != Kind::kString) refuse(part);
      pay(3 * kItem);
      attributes[make(items[i], depth + 2)] = make(items[i + 1], depth + 2);
    }
  }

  // TensorProperties has a state of its own: a tuple, in which a member of an enum stands for the memory
  // format.
  void fill_properties(Part part, nb::handle type, const std::vector<Part>& items, nb::dict& attributes,
                       std::uint32_t depth) {
    constexpr std::array kNames = {"dtype", "layout", "requires_grad", "memory_format", "pin_memory"};
    constexpr std::array kFormats = {"contiguous_format", "channels_last", "preserve_format"};
    if (!classes_.is_tensor_properties(type) || items.size() != kNames.size()) refuse(part);
    for (std::size_t i = 0; i < items.size(); ++i) {
      nb::object value = make(items[i], depth + 2);
      if (i == 3) {
        const nb::dict member = classes_.is_enum(value.type()) ? attributes_of(value) : nb::dict();
        const nb::handle number = find_in(member, "_value_");
        const auto format = number.is_valid() ? nb::cast<std::size_t>(number) : kFormats.size();
        if (format >= kFormats.size()) refuse(part);
        value = find_torchs(kFormats[format]);
      }
      attributes[kNames[i]] = value;
    }
  }

  static constexpr std::uint64_t kNode = 256;  // more than an object and its place in made_
  static constexpr std::uint64_t kItem = 48;   // a place in a list, and a small number there

  PickleView view_;
  const std::uint32_t deepest_;
  std::uint64_t memory_left_ = 0;
  std::uint64_t key_visits_left_;
  const TorchClasses classes_;
  std::unordered_map<std::uint64_t, nb::object> made_;
};

template <class F> auto in_file(std::string_view file, const F& f) {
  try {
    return f();
  } catch (Error& error) {
    error.in_file(file);
    throw;
  }
}

}  // namespace

nb::object object_of_pickle(std::string_view pickle, std::string_view file) {
  return in_file(file, [&] { return Builder(pickle, 2 * Limits().depth).build(); });
}

nb::object object_of_value(const Value& value, std::string_view file) {
  if (const auto* opaque = value.get_if<Opaque>()) return object_of_pickle(opaque->pickle, file);
  return in_file(file, [&] { return to_object(value, {}, nb::none()); });
}

Value readable_pickle(std::string_view pickle, const std::string& what) {
  constexpr std::uint32_t kAround =
      8;  // levels that a description has around it, and that bytes and sets need
  try {
    Builder(pickle, Limits().depth - kAround).build();
  } catch (Error& error) {
    throw Error(error.code(), what + " could not be read again: " + error.message());
  }
  return Opaque{"", std::string(pickle)};
}

}  // namespace cairn::python
