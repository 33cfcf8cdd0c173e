#include "values.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "state.h"

namespace cairn::python {
namespace {

constexpr std::size_t kDeepestState = 500;  // far below what overruns a stack

// Walks down a state; knows where it is.
class Walk {
 public:
  Walk(nb::handle describe, nb::list kept) : describe_(describe), kept_(std::move(kept)) {}

  // Keys become strings, as they are in the names of entries.
  Dict dict(nb::handle from) {
    Dict made;
    PyObject *key = nullptr, *item = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(from.ptr(), &at, &key, &item) != 0) {
      const nb::object held = nb::borrow(item);  // `describe` is Python, and may change the dict
      const std::string step = to_step(key);
      enter(step);
      if (made.find(step) != nullptr)
        throw Error(ErrorCode::kInvalidArgument, "two keys of a dict have this name").of_tensor(join(path_));
      made.set(step, value(held));
      path_.pop_back();
    }
    return made;
  }

 private:
  Value value(nb::handle object) {
    if (PyDict_Check(object.ptr())) return dict(object);
    if (PyList_Check(object.ptr())) return list(object);
    if (auto plain = plain_or_big(object)) return std::move(*plain);
    const nb::object described = describe_(object, to_str(join(path_)));
    if (!PyTuple_Check(described.ptr())) return plain_or_big(described).value();
    kept_.append(object);
    TensorView view;
    view.dtype = to_dtype(described[0]);
    view.data = reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(described[1]));
    view.shape = to_shape(described[2]);
    view.strides = to_shape(described[3]);
    return Tensor(std::move(view), nullptr);
  }

  List list(nb::handle from) {
    List made;
    for (Py_ssize_t i = 0; i < PyList_Size(from.ptr()); ++i) {
      enter(std::int64_t{i});
      made.push_back(value(nb::borrow(PyList_GetItem(from.ptr(), i))));
      path_.pop_back();
    }
    return made;
  }

  static std::optional<Value> plain_or_big(nb::handle object) {
    if (auto plain = plain_value(object)) return plain;
    if (!PyLong_CheckExact(object.ptr())) return std::nullopt;
    return big_integer(object);
  }

  static Value big_integer(nb::handle number) {
    const std::size_t bits = nb::cast<std::size_t>(number.attr("bit_length")());
    const nb::object bytes =
        number.attr("to_bytes")(bits / 8 + 1, "little", nb::arg("signed") = nb::bool_(true));
    return BigInt{std::string(bytes_of(bytes))};
  }

  std::string to_step(nb::handle key) {
    if (PyUnicode_Check(key.ptr()) || PyLong_CheckExact(key.ptr())) return to_text(nb::str(key));
    throw Error(ErrorCode::kUnsupported,
                "the keys of a state are strings and integers, not " + nb::cast<std::string>(nb::repr(key)))
        .of_tensor(join(path_));
  }

  template <class Step> void enter(const Step& step) {
    path_.emplace_back(step);
    if (path_.size() <= kDeepestState) return;
    throw Error(ErrorCode::kLimit, "a state is nested deeper than " + std::to_string(kDeepestState) +
                                       " levels; does it hold itself?");
  }

  nb::handle describe_;
  nb::list kept_;
  Path path_;
};

nb::object to_python(const Key& key) {
  const auto* number = std::get_if<std::int64_t>(&key);
  return number != nullptr ? nb::object(nb::int_(*number)) : to_str(std::get<std::string>(key));
}

// Makes Python's data of a value, a function for each type; knows where it is.
class Maker {
 public:
  Maker(Path path, nb::handle of_tensor) : path_(std::move(path)), of_tensor_(of_tensor) {}

  nb::object operator()(const None&) { return nb::none(); }
  nb::object operator()(bool flag) { return nb::bool_(flag); }
  nb::object operator()(std::int64_t number) { return nb::int_(number); }
  nb::object operator()(double number) { return nb::float_(number); }
  nb::object operator()(const std::string& text) { return to_str(text); }
  nb::object operator()(const Bytes& bytes) { return to_bytes(bytes.data); }
  nb::object operator()(const BigInt& number) {
    const nb::handle type(reinterpret_cast<PyObject*>(&PyLong_Type));
    return type.attr("from_bytes")(to_bytes(number.twos_complement), "little",
                                   nb::arg("signed") = nb::bool_(true));
  }
  nb::object operator()(const List& items) {
    nb::list made;
    for (std::size_t i = 0; i < items.size(); ++i) made.append(inner(static_cast<std::int64_t>(i), items[i]));
    return made;
  }
  nb::object operator()(const Tuple& tuple) { return nb::tuple((*this)(tuple.items)); }
  nb::object operator()(const Dict& dict) {
    nb::dict made;
    for (const auto& [key, item] : dict) made[to_python(key)] = inner(key, item);
    return made;
  }
  nb::object operator()(const Tensor& tensor) {
    if (of_tensor_.is_none()) refuse("a tensor inside an object");
    const TensorView& view = tensor.view();
    return of_tensor_(to_str(name_of(view.dtype)), to_tuple(view.shape), to_elements(tensor),
                      to_str(join(path_)));
  }
  nb::object operator()(const ShardedTensor&) { refuse("a tensor inside an object"); }
  nb::object operator()(const StoredTensor&) { refuse("a tensor inside an object"); }
  nb::object operator()(const Opaque& object) {
    refuse("a " + object.class_name + ", which only the code that wrote it can build again");
  }

 private:
  template <class Step> nb::object inner(const Step& step, const Value& value) {
    path_.emplace_back(step);
    nb::object made = value.visit(*this);
    path_.pop_back();
    return made;
  }
  [[noreturn]] void refuse(const std::string& what) {
    throw Error(ErrorCode::kUnsupported, "this is " + what + "; cairn gives plain values only")
        .of_tensor(join(path_));
  }

  Path path_;
  nb::handle of_tensor_;
};

// The loaded value for a key of a dict that is there.
const Value* loaded_for(nb::handle key, const Dict& loaded) {
  if (const Value* value = loaded.find(to_text(nb::str(key)))) return value;
  int overflow = 1;
  const long long number = PyLong_Check(key.ptr()) ? PyLong_AsLongLongAndOverflow(key.ptr(), &overflow) : 0;
  return overflow == 0 ? loaded.find(std::int64_t{number}) : nullptr;
}

bool fits(const Dict& loaded, nb::handle there) {
  if (!PyDict_Check(there.ptr()) || loaded.size() != static_cast<std::size_t>(PyDict_Size(there.ptr())))
    return false;
  for (const auto& [key, item] : nb::borrow<nb::dict>(there))
    if (loaded_for(key, loaded) == nullptr) return false;
  return true;
}

// Fills a container that is there; false: the value has to take its place.
bool fill(const Value& value, nb::handle there) {
  if (value.is_tensor()) return true;
  if (const Dict* dict = value.get_if<Dict>()) {
    if (!fits(*dict, there)) return false;
    give_back(*dict, nb::borrow<nb::dict>(there));
    return true;
  }
  const List* list = value.get_if<List>();
  if (list == nullptr || !PyList_Check(there.ptr()) ||
      list->size() != static_cast<std::size_t>(PyList_Size(there.ptr())))
    return false;
  for (std::size_t i = 0; i < list->size(); ++i)
    if (!fill((*list)[i], there[i])) there[i] = to_object((*list)[i], {}, nb::none());
  return true;
}

}  // namespace

StateDict to_state(const nb::dict& state, nb::handle describe, nb::list kept) {
  return Walk(describe, std::move(kept)).dict(state);
}

nb::object to_object(const Value& value, Path where, nb::handle of_tensor) {
  Maker make(std::move(where), of_tensor);
  return value.visit(make);
}

void give_back(const StateDict& loaded, const nb::dict& state) {
  for (const auto& [key, item] : nb::steal<nb::dict>(PyDict_Copy(state.ptr()))) {
    const Value* value = loaded_for(key, loaded);
    if (value != nullptr && !fill(*value, item))
      state[key] = to_object(*value, {to_text(nb::str(key))}, nb::none());
  }
}

nb::object to_elements(const Tensor& tensor) {
  using Elements = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
  auto* kept = new Tensor(tensor);
  const nb::capsule owner(kept, [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  const std::size_t size = kept->view().bytes();
  return nb::cast(Elements(kept->view().data, {size}, owner), nb::rv_policy::reference);
}

}  // namespace cairn::python
