// Failures of the operating system as errors.
#pragma once

#include <string>

#include "cairn/error.h"

namespace cairn {

// kNotFound for ENOENT, kConflict for EEXIST, else kIo.
[[noreturn]] void fail_with(const char* what, const std::string& path, int os_error);

}  // namespace cairn
