#include "base/current_error.h"

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

namespace cairn {
namespace {

// A thread that cannot be started throws one.
Error refused(const std::system_error& error) {
  const int os_error = error.code().value();
  const bool is_limit = os_error == EAGAIN || os_error == ENOMEM;
  return Error(is_limit ? ErrorCode::kLimit : ErrorCode::kIo, error.what()).with_errno(os_error);
}

}  // namespace

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kLimit, "there is not enough memory");
  } catch (const std::system_error& error) {
    return refused(error);
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  } catch (...) {
    return Error(ErrorCode::kInternal, "an exception of no known kind");
  }
}

}  // namespace cairn
