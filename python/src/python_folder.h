// A folder of a file system that is written in Python, and what that is found to be good for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cairn/storage.h"
#include "python_streams.h"

namespace cairn::python {

std::string fs_bytes(nb::handle path);   // of a str, bytes or path
void check_name(std::string_view name);  // Error(kInvalidArgument) unless it is one step of a path
void check_path(std::string_view path);  // Error(kCorrupt) unless it leads to something inside
bool is_step(std::string_view name);
std::string partial_name(const std::string& name);  // different at every call

// Shared by a file system with its writers and sources, which may outlive it.
struct PythonFolder {
  std::shared_ptr<void> fs_object, path_object;
  std::string root;

  nb::handle fs() const { return static_cast<PyObject*>(fs_object.get()); }
  nb::handle path() const { return static_cast<PyObject*>(path_object.get()); }
  std::string shown(std::string_view name) const { return root + "/" + std::string(name); }

  // The rest with the GIL held.
  nb::object path_of(std::string_view name) const;
  std::unique_ptr<PythonStream> open(std::string_view name, const char* mode) const {
    return std::make_unique<PythonStream>(fs(), path_of(name), mode);
  }
  bool exists(std::string_view name) const;
  void forget() const;  // what was listed before: others may have written since
  void remove_quietly(std::string_view name) const noexcept;
  // Some rename only to names that are free: there, unless it has to be one step, the old file goes first.
  void rename(std::string_view from, std::string_view to, bool in_one_step) const;
};

// What was found out by trying.
struct Abilities {
  bool exclusive = false;                 // of two that make a file, one is told
  bool renames = false;                   // what has the new name then is the very file
  std::shared_ptr<FileSystem> directory;  // where the files are, if that is a directory here
};

// Makes two empty files, renames one and removes it, under names that a clean-up knows. With the GIL held.
Abilities try_out(const PythonFolder& folder);

}  // namespace cairn::python
