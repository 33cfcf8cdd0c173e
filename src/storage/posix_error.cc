#include "storage/posix_error.h"

#include <cerrno>

namespace cairn {

void fail_with(const char* what, const std::string& path, int os_error) {
  const ErrorCode code = os_error == ENOENT   ? ErrorCode::kNotFound
                         : os_error == EEXIST ? ErrorCode::kConflict
                                              : ErrorCode::kIo;
  throw Error(code, what).in_file(path).with_errno(os_error);
}

}  // namespace cairn
