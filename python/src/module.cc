// cairn._engine: the C++ Checkpoint as Python sees it. python/cairn/__init__.py is its public face and
// _engine.pyi its description. The GIL is released while files are read.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "cairn/version.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Names of files and tensors may hold any bytes; what is no UTF-8 becomes U+FFFD.
nb::object to_str(std::string_view text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object text_or_none(std::string_view text) {
  return text.empty() ? nb::object(nb::none()) : to_str(text);
}

// The type cairn.Error, with a class attribute for everything an instance may know.
nb::object make_error_type() {
  nb::dict attributes;
  for (const char* name : {"code", "file", "tensor", "offset", "os_error"}) attributes[name] = nb::none();
  const char* doc =
      "Anything that cairn cannot do. `code` says what kind of failure it is (\"not_found\", \"corrupt\",\n"
      "\"unsupported\", \"invalid_argument\", \"io\", \"limit\", ...); `file`, `tensor`, `offset` and\n"
      "`os_error` say where, or are None.";
  PyObject* type = PyErr_NewExceptionWithDoc("cairn.Error", doc, nullptr, attributes.ptr());
  if (type == nullptr) throw nb::python_error();
  return nb::steal(type);
}

// `payload` is the type made above; the module keeps it alive.
void translate(const std::exception_ptr& thrown, void* payload) {
  try {
    std::rethrow_exception(thrown);
  } catch (const cairn::Error& e) {
    nb::object type = nb::borrow(static_cast<PyObject*>(payload));
    nb::object error = type(to_str(e.what()));
    error.attr("code") = to_str(cairn::name_of(e.code()));
    error.attr("file") = text_or_none(e.file());
    error.attr("tensor") = text_or_none(e.tensor());
    if (e.offset()) error.attr("offset") = *e.offset();
    if (e.os_error() != 0) error.attr("os_error") = e.os_error();
    PyErr_SetObject(type.ptr(), error.ptr());
  }
}

nb::list to_list(const cairn::Shape& shape) {
  nb::list dims;
  for (const std::int64_t dim : shape) dims.append(dim);
  return dims;
}

nb::list places(const cairn::Checkpoint& checkpoint, std::size_t tensor) {
  nb::list rows;
  for (const cairn::ChunkPlace& chunk : checkpoint.chunks(tensor)) {
    nb::dict row;
    row["offsets"] = to_list(chunk.box.offsets);
    row["sizes"] = to_list(chunk.box.sizes);
    row["file"] = to_str(chunk.file);
    row["offset"] = chunk.offset;
    row["length"] = chunk.length;
    rows.append(row);
  }
  return rows;
}

// One tensor as `cairn ls --json` gives it.
nb::dict describe(const cairn::Checkpoint& checkpoint, std::size_t at) {
  const cairn::TensorSummary& tensor = checkpoint.tensors()[at];
  nb::dict row;
  row["name"] = to_str(tensor.name);
  row["dtype"] = to_str(cairn::name_of(tensor.dtype));
  row["shape"] = to_list(tensor.shape);
  row["bytes"] = tensor.bytes;
  row["chunks"] = places(checkpoint, at);
  return row;
}

std::size_t position(const cairn::Checkpoint& checkpoint, std::string_view name) {
  if (const auto found = checkpoint.find_tensor(name)) return *found;
  throw cairn::Error(cairn::ErrorCode::kNotFound, "the checkpoint holds no tensor of this name")
      .of_tensor(name);
}

nb::list names(const cairn::Checkpoint& checkpoint) {
  nb::list all;
  for (const cairn::TensorSummary& tensor : checkpoint.tensors()) all.append(to_str(tensor.name));
  return all;
}

nb::list tensors(const cairn::Checkpoint& checkpoint) {
  nb::list rows;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) rows.append(describe(checkpoint, i));
  return rows;
}

nb::list objects(const cairn::Checkpoint& checkpoint) {
  nb::list rows;
  for (const cairn::ObjectSummary& object : checkpoint.objects()) {
    nb::dict row;
    row["name"] = to_str(object.name);
    row["bytes"] = object.bytes;
    rows.append(row);
  }
  return rows;
}

// (dtype name, shape, elements as bytes): all of a tensor, or the part "[0:16, ::2]" of it.
nb::tuple read_tensor(const cairn::Checkpoint& checkpoint, std::string_view name, std::string_view slice) {
  cairn::Tensor tensor;
  {
    nb::gil_scoped_release release;
    const std::size_t at = position(checkpoint, name);
    const cairn::Shape& shape = checkpoint.tensors()[at].shape;
    cairn::Selection selection;
    if (!slice.empty()) selection = cairn::parse_selection(slice, shape);
    tensor = checkpoint.read_at(at, selection);
  }
  const auto elements = static_cast<const cairn::Tensor&>(tensor).bytes();
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(elements.size())));
  if (!bytes.is_valid()) throw nb::python_error();
  if (!elements.empty()) {
    char* to = PyBytes_AS_STRING(bytes.ptr());
    nb::gil_scoped_release release;
    std::memcpy(to, elements.data(), elements.size());
  }
  return nb::make_tuple(to_str(cairn::name_of(tensor.view().dtype)), nb::tuple(to_list(tensor.view().shape)),
                        bytes);
}

}  // namespace

NB_MODULE(_engine, m) {
  m.attr("__version__") = to_str(cairn::version());

  nb::object error = make_error_type();
  m.attr("Error") = error;
  nb::register_exception_translator(translate, error.ptr());

  nb::class_<cairn::Checkpoint>(m, "Checkpoint")
      .def_prop_ro("format", [](const cairn::Checkpoint& self) { return cairn::name_of(self.format()); })
      .def("names", names)
      .def("tensors", tensors)
      .def("objects", objects)
      .def(
          "info",
          [](const cairn::Checkpoint& self, std::string_view name) {
            return describe(self, position(self, name));
          },
          "name"_a)
      .def("read", read_tensor, "name"_a, "slice"_a = "");

  m.def(
      "open", [](const std::filesystem::path& path) { return cairn::Checkpoint::open(path.string()); },
      "path"_a, nb::call_guard<nb::gil_scoped_release>());
}
