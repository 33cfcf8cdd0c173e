#include "storage/posix_error.h"

#include <cerrno>

namespace cairn {

ErrorCode code_of_errno(int os_error) {
  if (os_error == ENOENT || os_error == ESTALE) return ErrorCode::kNotFound;
  return os_error == EEXIST ? ErrorCode::kConflict : ErrorCode::kIo;
}

void fail_with(const char* what, const std::string& path, int os_error) {
  throw Error(code_of_errno(os_error), what).in_file(path).with_errno(os_error);
}

}  // namespace cairn
