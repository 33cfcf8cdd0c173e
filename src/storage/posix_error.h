// Failures of the operating system as errors.
#pragma once

#include <string>

#include "cairn/error.h"

namespace cairn {

// kNotFound for ENOENT and ESTALE (a server keeps nothing that nobody names any more), kConflict for EEXIST,
// else kIo.
ErrorCode code_of_errno(int os_error);

// Throws an Error of that code.
[[noreturn]] void fail_with(const char* what, const std::string& path, int os_error);

}  // namespace cairn
