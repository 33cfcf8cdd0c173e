#include "python_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cairn/error.h"

namespace cairn::python {
namespace {

constexpr int kTries = 3;  // to find out what a folder is good for

// Where a stream's file is and which file that is: None where there is no such thing.
nb::object file_of(const PythonStream& stream) {
  const std::optional<int> descriptor = stream.descriptor();
  if (!descriptor) return nb::none();
  const nb::object status = nb::module_::import_("os").attr("fstat")(*descriptor);
  return nb::make_tuple(status.attr("st_dev"), status.attr("st_ino"));
}

// The directory of a stream's file, when the file has the name that was asked for.
std::string directory_of(const PythonStream& stream, const std::string& name) {
  const std::string link = "/proc/self/fd/" + std::to_string(stream.descriptor().value_or(-1));
  const std::string path = fs_bytes(nb::module_::import_("os").attr("readlink")(link));
  return path.ends_with("/" + name) ? path.substr(0, path.size() - name.size() - 1) : "";
}

// nullopt when somebody who cleans up came in between.
std::optional<Abilities> try_once(const PythonFolder& folder) {
  Abilities can;
  bool is_local = false, is_disturbed = false;
  const std::string one = partial_name(".cairn-try"), other = partial_name(".cairn-try");
  try {
    auto stream = folder.open(one, "xb");
    const nb::object file = file_of(*stream);
    const std::string directory = file.is_none() ? "" : directory_of(*stream, one);
    stream->close();
    is_local = !directory.empty();
    if (is_local) {
      try {
        folder.open(one, "xb")->close();
      } catch (nb::python_error& raised) {
        can.exclusive = raised.matches(PyExc_FileExistsError);
      }
      folder.open(other, "xb")->close();
      folder.fs().attr("rename")(folder.path_of(one), folder.path_of(other));
      stream = folder.open(other, "rb");
      can.renames = file_of(*stream).equal(file) && !folder.exists(one);
      stream->close();
      if (can.renames) can.directory = posix_file_system(directory);
      can.exclusive = can.exclusive && can.renames;
    }
  } catch (nb::python_error& raised) {
    is_disturbed = is_local && raised.matches(PyExc_FileNotFoundError);
    can = {};  // it knows no such mode, or something else of these
  } catch (const Error&) {
    can = {};
  }
  folder.remove_quietly(one);
  folder.remove_quietly(other);
  return is_disturbed ? std::nullopt : std::optional(can);
}

}  // namespace

std::string fs_bytes(nb::handle path) {
  const nb::object plain = nb::steal(PyOS_FSPath(path.ptr()));
  if (!plain.is_valid()) throw nb::python_error();
  if (PyBytes_Check(plain.ptr())) return std::string(bytes_of(plain));
  const nb::object encoded = nb::steal(PyUnicode_EncodeFSDefault(plain.ptr()));
  if (!encoded.is_valid()) throw nb::python_error();
  return std::string(bytes_of(encoded));
}

bool is_step(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

void check_name(std::string_view name) {
  if (!is_step(name))
    throw Error(ErrorCode::kInvalidArgument,
                "'" + std::string(name.substr(0, 256)) + "' is no name for a file");
}

void check_path(std::string_view path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (!is_step(path.substr(begin, end - begin)))
      throw Error(ErrorCode::kCorrupt,
                  "'" + std::string(path.substr(0, 256)) + "' is not a path inside the folder");
    begin = end + 1;
  }
}

std::string partial_name(const std::string& name) {
  const nb::object digits = nb::module_::import_("os").attr("urandom")(8).attr("hex")();
  return name + "." + to_text(digits) + ".cairn-partial";
}

nb::object PythonFolder::path_of(std::string_view name) const {
  const nb::object text =
      nb::steal(PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  if (!text.is_valid()) throw nb::python_error();
  return fs().attr("concat_path")(path(), text);
}

bool PythonFolder::exists(std::string_view name) const {
  const int is = PyObject_IsTrue(nb::object(fs().attr("exists")(path_of(name))).ptr());
  if (is < 0) throw nb::python_error();
  return is != 0;
}

void PythonFolder::forget() const {
  const nb::object inner = nb::getattr(fs(), "fs", nb::none());
  if (nb::hasattr(inner, "invalidate_cache")) inner.attr("invalidate_cache")();
}

void PythonFolder::remove_quietly(std::string_view name) const noexcept {
  try {
    if (exists(name)) fs().attr("rm_file")(path_of(name));
  } catch (const std::exception&) {
    // The next save or a clean-up finds it.
  }
}

void PythonFolder::rename(std::string_view from, std::string_view to, bool in_one_step) const {
  try {
    fs().attr("rename")(path_of(from), path_of(to));
  } catch (nb::python_error&) {
    if (in_one_step || !exists(from) || !exists(to)) throw;
    fs().attr("rm_file")(path_of(to));
    fs().attr("rename")(path_of(from), path_of(to));
  }
}

Abilities try_out(const PythonFolder& folder) {
  for (int left = kTries; left > 0; --left)
    if (const std::optional<Abilities> found = try_once(folder)) return *found;
  return {};
}

}  // namespace cairn::python
