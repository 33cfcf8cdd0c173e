// One file of a folder whose file system is written in Python: being written, or read.
#pragma once

#include <memory>
#include <string>

#include "cairn/storage.h"
#include "python_folder.h"

namespace cairn::python {

// How a file gets its name.
enum class Naming {
  kInPlace,   // it has it from the beginning
  kReplaces,  // at the end, whoever has it
  kAlone,     // at the end, if nobody has it: the name is taken by an empty file first
};

struct WriteHow {
  Naming naming = Naming::kInPlace;
  const char* mode = "wb";
  bool durable = true;
  bool renames_in_one_step = false;
};

// Both without the GIL; errors name the file.
std::unique_ptr<FileWriter> python_writer(std::shared_ptr<const PythonFolder> folder, std::string name,
                                          const WriteHow& how);
std::shared_ptr<const ByteSource> python_source(std::shared_ptr<const PythonFolder> folder, std::string name);

}  // namespace cairn::python
