#include "python_streams.h"

#include <cerrno>
#include <cstring>

#include "cairn/error.h"

namespace cairn::python {

Error error_in(const std::string& file, nb::python_error& raised) {
  const Error told = error_of(raised.value());
  ErrorCode code = told.code();
  int os_error = 0;
  if (raised.matches(PyExc_OSError)) {
    code = raised.matches(PyExc_FileNotFoundError) ? ErrorCode::kNotFound
           : raised.matches(PyExc_FileExistsError) ? ErrorCode::kConflict
                                                   : ErrorCode::kIo;
    const nb::object number = nb::getattr(raised.value(), "errno", nb::none());
    if (PyLong_Check(number.ptr())) os_error = nb::cast<int>(number);
  }
  Error error(code, told.message());
  error.with_cause(told.cause()).in_file(file);
  return os_error == 0 ? error : error.with_errno(os_error);
}

PythonStream::PythonStream(nb::handle fs, nb::handle path, const char* mode)
    : manager_(fs.attr("create_stream")(path, mode)),
      stream_(manager_.attr("__enter__")()),
      reads_into_(nb::hasattr(stream_, "readinto")) {}

PythonStream::~PythonStream() {
  nb::gil_scoped_acquire acquire;
  try {
    if (open_) {
      const nb::object why = nb::handle(PyExc_RuntimeError)("the file was given up");
      manager_.attr("__exit__")(why.type(), why, nb::none());
    }
  } catch (nb::python_error&) {
    // Whoever gave it up says why.
  }
  stream_.reset();
  manager_.reset();
}

void PythonStream::close() {
  open_ = false;
  manager_.attr("__exit__")(nb::none(), nb::none(), nb::none());
}

void PythonStream::write(std::span<const std::byte> bytes) { write_all(stream_, bytes); }

void PythonStream::make_durable() {
  stream_.attr("flush")();
  const std::optional<int> file = descriptor();
  if (!file) return;  // somewhere else, which is durable in its own way or not at all
  try {
    nb::module_::import_("os").attr("fsync")(*file);
  } catch (nb::python_error& raised) {
    // A pipe or a device has nothing to sync.
    const nb::object number = nb::getattr(raised.value(), "errno", nb::none());
    if (!raised.matches(PyExc_OSError) || !number.equal(nb::int_(EINVAL))) throw;
  }
}

std::uint64_t PythonStream::size() {
  stream_.attr("seek")(0, 2);
  return nb::cast<std::uint64_t>(stream_.attr("tell")());
}

bool PythonStream::read_at(std::uint64_t offset, std::span<std::byte> to) {
  stream_.attr("seek")(offset);
  while (!to.empty()) {
    std::size_t got = 0;
    if (reads_into_) {
      const nb::object view = nb::steal(PyMemoryView_FromMemory(
          reinterpret_cast<char*>(to.data()), static_cast<Py_ssize_t>(to.size()), PyBUF_WRITE));
      const nb::object read = stream_.attr("readinto")(view);
      view.attr("release")();
      got = read.is_none() ? 0 : nb::cast<std::size_t>(read);
    } else {
      const nb::object data = nb::bytes(nb::object(stream_.attr("read")(to.size())));
      got = bytes_of(data).size();
      if (got <= to.size()) std::memcpy(to.data(), bytes_of(data).data(), got);
    }
    if (got > to.size()) throw Error(ErrorCode::kIo, "the stream gives more than it was asked for");
    if (got == 0) return false;
    to = to.subspan(got);
  }
  return true;
}

std::optional<int> PythonStream::descriptor() const {
  const nb::object found = nb::module_::import_("cairn.torch._places").attr("descriptor_of")(stream_);
  return found.is_none() ? std::nullopt : std::optional(nb::cast<int>(found));
}

void write_all(nb::handle stream, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Python only reads it.
    const nb::object view =
        nb::steal(PyMemoryView_FromMemory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())),
                                          static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ));
    const nb::object wrote = stream.attr("write")(view);
    // The memory is somebody else's afterwards: a stream that keeps the view is told so when it looks again.
    view.attr("release")();
    const std::size_t taken = wrote.is_none() ? bytes.size() : nb::cast<std::size_t>(wrote);
    if (taken == 0 || taken > bytes.size())
      throw Error(ErrorCode::kIo, "the stream says that it took " + std::to_string(taken) + " bytes of " +
                                      std::to_string(bytes.size()));
    bytes = bytes.subspan(taken);
  }
}

}  // namespace cairn::python
