// Checkpoint as Python sees it: what a checkpoint holds, without torch. The GIL is released while files are
// read.

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "values.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

nb::list to_list(const Shape& shape) {
  nb::list dims;
  for (const std::int64_t dim : shape) dims.append(dim);
  return dims;
}

nb::list places(const Checkpoint& checkpoint, std::size_t tensor) {
  nb::list rows;
  for (const ChunkPlace& chunk : checkpoint.chunks(tensor)) {
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
nb::dict describe(const Checkpoint& checkpoint, std::size_t at) {
  const TensorSummary& tensor = checkpoint.tensors()[at];
  nb::dict row;
  row["name"] = to_str(tensor.name);
  row["dtype"] = to_str(name_of(tensor.dtype));
  row["shape"] = to_list(tensor.shape);
  row["bytes"] = tensor.bytes;
  row["chunks"] = places(checkpoint, at);
  return row;
}

std::size_t position(const Checkpoint& checkpoint, std::string_view name) {
  if (const auto found = checkpoint.find_tensor(name)) return *found;
  (void)checkpoint.read(name);  // says what is wrong, and which names are near
  throw Error(ErrorCode::kNotFound, "the checkpoint holds no tensor of this name").of_tensor(name);
}

// (position, dtype, shape, bytes), or None.
nb::object find(const Checkpoint& checkpoint, std::string_view name) {
  const auto found = checkpoint.find_tensor(name);
  if (!found) return nb::none();
  const TensorSummary& tensor = checkpoint.tensors()[*found];
  return nb::make_tuple(*found, to_str(name_of(tensor.dtype)), to_tuple(tensor.shape), tensor.bytes);
}

Selection to_selection(const nb::list& ranges) {
  Selection selection;
  for (nb::handle range : ranges)
    selection.push_back({nb::cast<std::int64_t>(range[0]), nb::cast<std::int64_t>(range[1]),
                         nb::cast<std::int64_t>(range[2])});
  return selection;
}

// The selected elements as they are stored, or converted to another type, as a numpy array of bytes.
nb::object read_part(const Checkpoint& checkpoint, std::size_t at, const nb::list& ranges, nb::handle dtype) {
  if (at >= checkpoint.tensors().size()) throw nb::index_error("there are not so many tensors");
  const Selection selection = to_selection(ranges);
  const DType wanted = dtype.is_none() ? checkpoint.tensors()[at].dtype : to_dtype(dtype);
  Tensor tensor;
  {
    nb::gil_scoped_release release;
    tensor = checkpoint.read_at(at, selection);
    if (tensor.view().dtype != wanted) {
      const Tensor converted = Tensor::empty(wanted, tensor.view().shape);
      copy(tensor.view(), converted.view());
      tensor = converted;
    }
  }
  return to_elements(tensor);
}

nb::object read_object(const Checkpoint& checkpoint, const std::string& name) {
  Value value;
  {
    nb::gil_scoped_release release;
    value = checkpoint.object(name);
  }
  return to_object(value, {name}, nb::none());
}

nb::list names(const Checkpoint& checkpoint) {
  nb::list all;
  for (const TensorSummary& tensor : checkpoint.tensors()) all.append(to_str(tensor.name));
  return all;
}

nb::list tensors(const Checkpoint& checkpoint) {
  nb::list rows;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) rows.append(describe(checkpoint, i));
  return rows;
}

nb::list objects(const Checkpoint& checkpoint) {
  nb::list rows;
  for (const ObjectSummary& object : checkpoint.objects()) {
    nb::dict row;
    row["name"] = to_str(object.name);
    row["bytes"] = object.bytes;
    rows.append(row);
  }
  return rows;
}

// (dtype name, shape, elements as bytes): all of a tensor, or the part "[0:16, ::2]" of it.
nb::tuple read_tensor(const Checkpoint& checkpoint, std::string_view name, std::string_view slice) {
  Tensor tensor;
  {
    nb::gil_scoped_release release;
    const std::size_t at = position(checkpoint, name);
    const Shape& shape = checkpoint.tensors()[at].shape;
    Selection selection;
    if (!slice.empty()) selection = parse_selection(slice, shape);
    tensor = checkpoint.read_at(at, selection);
  }
  const auto elements = static_cast<const Tensor&>(tensor).bytes();
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(elements.size())));
  if (!bytes.is_valid()) throw nb::python_error();
  if (!elements.empty()) {
    char* to = PyBytes_AsString(bytes.ptr());
    nb::gil_scoped_release release;
    std::memcpy(to, elements.data(), elements.size());
  }
  return nb::make_tuple(to_str(name_of(tensor.view().dtype)), nb::tuple(to_list(tensor.view().shape)), bytes);
}

}  // namespace

void bind_checkpoint(nb::module_& m) {
  nb::class_<Checkpoint>(m, "Checkpoint")
      .def_prop_ro("format", [](const Checkpoint& self) { return name_of(self.format()); })
      .def("__len__", [](const Checkpoint& self) { return self.tensors().size(); })
      .def("names", names)
      .def("tensors", tensors)
      .def("objects", objects)
      .def(
          "info",
          [](const Checkpoint& self, std::string_view name) { return describe(self, position(self, name)); },
          "name"_a)
      .def("read", read_tensor, "name"_a, "slice"_a = "")
      .def("find", find, "name"_a)
      .def("read_part", read_part, "at"_a, "ranges"_a, "dtype"_a.none() = nb::none())
      .def("object", read_object, "name"_a);

  m.def(
      "open", [](const std::filesystem::path& path) { return Checkpoint::open(path.string()); }, "path"_a,
      nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace cairn::python
