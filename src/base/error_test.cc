#include "cairn/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <limits>
#include <set>
#include <string>

#include "base/checked.h"

namespace cairn {
namespace {

TEST(Error, SaysWhereAndWhatInOneLine) {
  Error e(ErrorCode::kCorrupt, "header is longer than the file");
  EXPECT_STREQ(e.what(), "header is longer than the file (corrupt)");
  e.at(8).of_tensor("w").in_file("a.distcp").while_doing("load").on_rank(3);
  EXPECT_STREQ(e.what(),
               "rank 3: load: a.distcp: tensor 'w': at byte 8: header is longer than the file (corrupt)");
  EXPECT_EQ(e.message(), "header is longer than the file");
}

TEST(Error, OuterLevelsDoNotOverwriteInnerOnes) {
  Error e(ErrorCode::kIo, "cannot read");
  e.in_file("inner").at(0).of_tensor("a").on_rank(0).while_doing("read").with_errno(EIO);
  e.in_file("outer").at(9).of_tensor("b").on_rank(7).while_doing("load").with_errno(ENOSPC);
  EXPECT_EQ(e.file(), "inner");
  EXPECT_EQ(e.offset(), 0U);
  EXPECT_EQ(e.tensor(), "a");
  EXPECT_EQ(e.rank(), 0);
  EXPECT_EQ(e.doing(), "read");
  EXPECT_EQ(e.os_error(), EIO);
}

TEST(Error, NamesTheSystemsReason) {
  const std::string text = Error(ErrorCode::kIo, "cannot open").with_errno(ENOENT).what();
  EXPECT_EQ(text, "cannot open: No such file or directory (io)");
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    names.insert(name_of(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  EXPECT_EQ(name_of(ErrorCode::kNotFound), "not_found");
}

TEST(CheckpointError, GroupsRanksByCause) {
  const Error full = Error(ErrorCode::kIo, "cannot write").with_errno(ENOSPC);
  const Error other(ErrorCode::kTimeout, "no answer");
  const CheckpointError e("write", {{0, full}, {1, other}, {5, full}});
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.failures().size(), 3U);
  EXPECT_EQ(e.message(),
            "step 'write' failed on 3 rank(s); rank 0,5: cannot write: No space left on device (io); "
            "rank 1: no answer (timeout)");
}

TEST(CheckpointError, IsCaughtAsAnError) {
  try {
    throw CheckpointError("plan", {{2, Error(ErrorCode::kConflict, "taken")}});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kConflict);
  }
}

template <class Action> void expect_limit(Action action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kLimit);
  }
}

TEST(Checked, OverflowIsALimitErrorAndNotAWrappedNumber) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kSignedMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_add<std::uint64_t>(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_mul<std::int64_t>(kSignedMax / 2, 2), kSignedMax - 1);
  expect_limit([] { checked_add<std::uint64_t>(kMax, 1); });
  expect_limit([] { checked_mul<std::uint64_t>(kMax / 2 + 1, 2); });
  expect_limit([] { checked_mul<std::int64_t>(kSignedMax, -2); });
}

TEST(Checked, AlignUpRoundsToTheNextMultiple) {
  EXPECT_EQ(align_up(0, 4096), 0U);
  EXPECT_EQ(align_up(1, 4096), 4096U);
  EXPECT_EQ(align_up(4096, 4096), 4096U);
  expect_limit([] { align_up(std::numeric_limits<std::uint64_t>::max() - 1, 4096); });
}

}  // namespace
}  // namespace cairn
