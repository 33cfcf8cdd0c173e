// One stream of a file system that is written in Python.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "python.h"

namespace cairn::python {

// What Python raised, about a file: not found, in the way, or the system's failure, where it says so.
Error error_in(const std::string& file, nb::python_error& raised);

// Calls f with the GIL held; what it raises becomes an Error about the file.
template <class F> auto in_python(const std::string& file, const F& f) {
  nb::gil_scoped_acquire acquire;
  try {
    return f();
  } catch (nb::python_error& raised) {
    throw error_in(file, raised);
  }
}

// Open from its construction until close() or its end. All but the destructor is called with the GIL held.
class PythonStream {
 public:
  PythonStream(nb::handle fs, nb::handle path, const char* mode);
  PythonStream(const PythonStream&) = delete;
  PythonStream& operator=(const PythonStream&) = delete;
  ~PythonStream();  // a stream that is still open is told that its work has failed

  void write(std::span<const std::byte> bytes);
  void make_durable();
  std::uint64_t size();
  // False when the stream ends before that.
  bool read_at(std::uint64_t offset, std::span<std::byte> to);
  void close();

  // Of the operating system's file behind it, if there is one.
  std::optional<int> descriptor() const;
  bool is_the_same_as(const PythonStream& other) const { return stream_.is(other.stream_); }

 private:
  nb::object manager_, stream_;
  bool reads_into_ = false;
  bool open_ = true;
};

// All of `bytes` through stream.write, which may take less at a time.
void write_all(nb::handle stream, std::span<const std::byte> bytes);

}  // namespace cairn::python
