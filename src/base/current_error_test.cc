#include "base/current_error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

#include "testing/errors.h"

namespace cairn {
namespace {

template <class Thrown> Error typed(const Thrown& thrown) {
  return error_of([&] { with_typed_errors([&] { throw thrown; }); });
}

TEST(CurrentError, IsAnErrorWhateverWasThrown) {
  EXPECT_EQ(typed(std::bad_alloc()).code(), ErrorCode::kLimit);
  EXPECT_EQ(typed(std::runtime_error("x")).code(), ErrorCode::kInternal);
  EXPECT_EQ(typed(7).code(), ErrorCode::kInternal);
  const Error no_thread = typed(std::system_error(EAGAIN, std::generic_category()));
  EXPECT_EQ(no_thread.code(), ErrorCode::kLimit);
  EXPECT_EQ(no_thread.os_error(), EAGAIN);
}

TEST(CurrentError, LeavesAnErrorAsItIs) {
  const Error same = typed(CheckpointError("write", {{3, Error(ErrorCode::kIo, "x")}}));
  EXPECT_EQ(same.code(), ErrorCode::kIo);
  EXPECT_THROW(with_typed_errors([] { throw CheckpointError("write", {}); }), CheckpointError);
}

}  // namespace
}  // namespace cairn
