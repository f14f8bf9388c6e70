// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "libckpt/base/result.h"

namespace ckpt {
namespace {

TEST(Error, CauseChainIsPrintedOnOneLine) {
  const Error error = Error(ErrorCode::kUnavailable, "Cannot reach node b")
                          .caused_by(Error::from_errno(ECONNREFUSED, "Connecting to 10.0.0.2"));
  EXPECT_EQ(error.to_string(), "Cannot reach node b: Connecting to 10.0.0.2 (errno 111 Connection refused)");
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error.cause()->native(), ECONNREFUSED);
}

TEST(Error, ErrnoIsMappedToAnErrorCode) {
  EXPECT_EQ(Error::from_errno(ENOMEM, "x").code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(Error::from_errno(ETIMEDOUT, "x").code(), ErrorCode::kTimedOut);
  EXPECT_EQ(Error::from_errno(ENOENT, "x").code(), ErrorCode::kNotFound);
  EXPECT_EQ(Error::from_errno(EPIPE, "x").code(), ErrorCode::kUnavailable);
  EXPECT_EQ(Error::from_errno(ENOSPC, "x").code(), ErrorCode::kIo);
}

Result<int> half(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  CKPT_TRY(once, half(value));
  CKPT_TRYV(half(once));
  return half(once);
}

TEST(Result, TryMacroReturnsValuesAndPropagatesErrors) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message(), "odd");
  EXPECT_EQ(quarter(5).error().code(), ErrorCode::kInvalidArgument);
}

TEST(ErrorCode, EveryCodeHasAName) {
  for (int code = 1; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    EXPECT_NE(to_string(static_cast<ErrorCode>(code)), "unknown") << code;
  }
}

}  // namespace
}  // namespace ckpt
