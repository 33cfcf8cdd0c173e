// Whatever was thrown, as an Error.
#pragma once

#include <utility>

#include "cairn/error.h"

namespace cairn {

// The exception being handled. Memory that ran out is kLimit, and so is a thread that could not be had;
// others are kInternal. std::bad_alloc when there is not even memory for an Error.
Error current_error();

// Calls `work` and returns what it returns; what it throws is an Error, if there is memory for one.
template <class Work> auto with_typed_errors(Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw current_error();
  }
}

}  // namespace cairn
