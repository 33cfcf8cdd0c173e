// What a call throws, for tests that look at it.
#pragma once

#include <gtest/gtest.h>

#include "cairn/error.h"

namespace cairn {

// The Error that `call` throws; fails the test and gives an internal one when it throws none.
template <class Call> Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "nothing was thrown");
}

template <class Call> ErrorCode code_of(Call&& call) { return error_of(call).code(); }

inline bool mentions(const Error& e, std::string_view text) {
  return std::string_view(e.what()).find(text) != std::string_view::npos;
}

}  // namespace cairn
