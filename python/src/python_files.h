// File systems that are written in Python: whatever has the methods of torch's FileSystemBase.
//
//   create_stream(path, mode)   a context manager that gives a stream: "wb", "rb", and "xb" where there is
//   one concat_path, rename, mkdir, exists, rm_file ls(path), sync_directory(path)   where there are such
//
// The GIL is held for each call and no longer. What a method raises becomes an Error that has the exception
// with it.
#pragma once

#include <memory>

#include "cairn/storage.h"
#include "python.h"

namespace cairn::python {

// Files are written from front to end: those that nobody looks for under their own names, the others under
// another one until they are whole. What such a file system is good for is found out by trying, by the first
// who asks: where its streams lead to files of a directory here, and its rename renames, locks and a save
// that takes its turn are as good as there. Everywhere else nobody is kept out, and a rename may be two
// steps.
std::shared_ptr<FileSystem> python_file_system(nb::object fs, nb::object path, bool create = false);

// The same folder by the shortest way: a directory of this machine is one, when torch's or cairn's own class
// for such, or fsspec's, as it stands, says where it is.
std::shared_ptr<FileSystem> files_of(nb::object fs, nb::object path, const FileSystemOptions& options = {});

// What Python holds of it: cairn._engine.Files.
struct Files {
  std::shared_ptr<FileSystem> files;
};

}  // namespace cairn::python
