#include "python.h"

#include <exception>
#include <optional>
#include <string>

#include "cairn/error.h"

namespace cairn::python {
namespace {

PyObject* error_type = nullptr;  // the module keeps it alive

// Of all threads; the GIL guards them.
int pauses = 0;
bool collected_before = false;

nb::object collector(const char* name) { return nb::module_::import_("gc").attr(name); }

nb::object text_or_none(std::string_view text) {
  return text.empty() ? nb::object(nb::none()) : to_str(text);
}

nb::object make_error_type() {
  nb::dict attributes;
  for (const char* name : {"code", "message", "doing", "file", "tensor", "offset", "rank", "os_error", "step",
                           "failures", "cause"})
    attributes[name] = nb::none();
  const char* doc =
      "Anything that cairn cannot do. `code` says what kind of failure it is (\"not_found\", \"corrupt\",\n"
      "\"unsupported\", \"invalid_argument\", \"io\", \"limit\", ...); `file`, `tensor`, `offset`, `rank` "
      "and\n"
      "`os_error` say where, or are None. When several ranks were at work, `failures` is a dict of the "
      "ranks\n"
      "that failed and their errors.";
  PyObject* type = PyErr_NewExceptionWithDoc("cairn.Error", doc, nullptr, attributes.ptr());
  if (type == nullptr) throw nb::python_error();
  return nb::steal(type);
}

nb::object to_python(const Error& e) {
  nb::object error = nb::borrow(error_type)(to_str(e.what()));
  error.attr("code") = to_str(name_of(e.code()));
  error.attr("message") = to_str(e.message());
  error.attr("doing") = text_or_none(e.doing());
  error.attr("file") = text_or_none(e.file());
  error.attr("tensor") = text_or_none(e.tensor());
  if (e.offset()) error.attr("offset") = *e.offset();
  if (e.rank()) error.attr("rank") = *e.rank();
  if (e.os_error() != 0) error.attr("os_error") = e.os_error();
  if (!e.cause().empty()) error.attr("cause") = to_bytes(e.cause());
  return error;
}

// What str() makes of an object, for errors: whatever it does, and whatever is in its text.
std::string text_of(nb::handle object) {
  PyObject* text = PyObject_Str(object.ptr());
  const nb::object shown = nb::steal(text);
  PyObject* bytes = text == nullptr ? nullptr : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
  if (bytes != nullptr) return std::string(bytes_of(nb::steal(bytes)));
  PyErr_Clear();
  return {};
}

// The other way. None for an error of a code that the engine does not know.
std::optional<Error> from_python(nb::handle error) {
  const auto attribute = [&](const char* name) {
    const nb::object value = error.attr(name);
    return value.is_none() ? std::string() : text_of(value);
  };
  const std::string code = attribute("code");
  int number = 0;
  while (name_of(static_cast<ErrorCode>(number)) != code)
    if (++number > static_cast<int>(ErrorCode::kInternal)) return std::nullopt;
  Error made(static_cast<ErrorCode>(number), attribute("message"));
  made.while_doing(attribute("doing")).in_file(attribute("file")).of_tensor(attribute("tensor"));
  const nb::object offset = error.attr("offset"), os_error = error.attr("os_error"),
                   cause = error.attr("cause");
  if (!offset.is_none()) made.at(nb::cast<std::uint64_t>(offset));
  if (!os_error.is_none()) made.with_errno(nb::cast<int>(os_error));
  if (!cause.is_none()) made.with_cause(bytes_of(cause));
  return made;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const CheckpointError& e) {
    nb::object error = to_python(e);
    nb::dict failures;
    for (const auto& [rank, failure] : e.failures()) failures[nb::int_(rank)] = to_python(failure);
    error.attr("failures") = failures;
    error.attr("step") = text_or_none(e.step());
    PyErr_SetObject(error_type, error.ptr());
  } catch (const Error& e) {
    PyErr_SetObject(error_type, to_python(e).ptr());
  }
}

}  // namespace

nb::object to_str(std::string_view text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

std::string to_text(nb::handle text) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) throw nb::python_error();
  return {utf8, static_cast<std::size_t>(size)};
}

void log_warnings(const std::vector<std::string>& warnings) {
  if (warnings.empty()) return;
  const nb::object logger = nb::module_::import_("logging").attr("getLogger")("cairn");
  for (const std::string& text : warnings) logger.attr("warning")("%s", to_str(text));
}

nb::bytes to_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

std::string_view bytes_of(nb::handle bytes) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes.ptr(), &data, &size) != 0) throw nb::python_error();
  return {data, static_cast<std::size_t>(size)};
}

nb::tuple to_tuple(const Shape& shape) {
  nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.rank())));
  if (!made.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < shape.rank(); ++i)
    PyTuple_SetItem(made.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  return nb::cast<nb::tuple>(made);
}

Shape to_shape(nb::handle numbers) {
  nb::object fast = nb::steal(PySequence_Fast(numbers.ptr(), "a shape is a sequence of numbers"));
  if (!fast.is_valid()) throw nb::python_error();
  const Py_ssize_t size = PySequence_Size(fast.ptr());
  Shape shape(static_cast<std::size_t>(size), 0);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const nb::object number = nb::steal(PySequence_GetItem(fast.ptr(), i));
    if (number.is_valid()) shape[static_cast<std::size_t>(i)] = PyLong_AsLongLong(number.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  return shape;
}

DType to_dtype(nb::handle name) {
  const std::string text = to_text(name);
  if (const auto dtype = dtype_from_name(text)) return *dtype;
  throw Error(ErrorCode::kUnsupported, "the engine has no element type " + text);
}

void bind_errors(nb::module_& m) {
  nb::object type = make_error_type();
  m.attr("Error") = type;
  error_type = type.ptr();
  nb::register_exception_translator(translate, nullptr);
}

Error error_of(nb::handle exception) {
  const nb::object encoded = nb::module_::import_("cairn._errors").attr("encode")(exception);
  if (PyObject_IsInstance(exception.ptr(), error_type) == 1) {
    if (auto error = from_python(exception)) {
      // What is more than the engine's own error stays what it is.
      if (exception.type().ptr() != error_type) error->with_cause(bytes_of(encoded));
      return *std::move(error);
    }
  }
  const std::string text = text_of(exception);
  const bool stopped = PyErr_GivenExceptionMatches(exception.ptr(), PyExc_KeyboardInterrupt) != 0 ||
                       PyErr_GivenExceptionMatches(exception.ptr(), PyExc_SystemExit) != 0;
  const std::string name = nb::cast<std::string>(exception.type().attr("__name__"));
  Error error(stopped ? ErrorCode::kCancelled : ErrorCode::kInvalidArgument,
              text.empty() ? name : name + ": " + text);
  return error.with_cause(bytes_of(encoded));
}

void throw_as_error(nb::python_error& raised) { throw error_of(raised.value()); }

WithoutCollector::WithoutCollector() {
  if (pauses++ > 0) return;
  collected_before = nb::cast<bool>(collector("isenabled")());
  collector("disable")();
}

WithoutCollector::~WithoutCollector() {
  if (--pauses > 0 || !collected_before) return;
  try {
    collector("enable")();
  } catch (const std::exception&) {
    // There is no memory for a call; whoever wants it enables it again.
  }
}

std::shared_ptr<void> owner_of(nb::object object) {
  return {object.release().ptr(), [](void* held) {
            nb::gil_scoped_acquire acquire;
            Py_DECREF(static_cast<PyObject*>(held));
          }};
}

}  // namespace cairn::python
