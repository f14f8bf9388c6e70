// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/program_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace ckpt {
namespace {

UniqueFd null_device() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(ProgramFd, DescriptorIsMovedAboveTheNumbersOfPrograms) {
  const UniqueFd first = null_device();
  const int number = first.get();
  const UniqueFd copy = *copy_beyond_program(number);
  EXPECT_GE(copy.get(), 512);
  EXPECT_EQ(::fcntl(copy.get(), F_GETFD), FD_CLOEXEC);
  const UniqueFd moved = move_beyond_program(null_device());
  EXPECT_GT(moved.get(), copy.get());
  EXPECT_EQ(null_device().get(), number + 1) << "the former number is free";
}

TEST(ProgramFd, DescriptorStaysAmongTheProgramDescriptorsIfTheLimitIsLow) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const UniqueFd moved = move_beyond_program(null_device());
  EXPECT_TRUE(moved);
  EXPECT_LT(moved.get(), 256);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(ProgramFd, InvalidDescriptorStaysInvalid) {
  EXPECT_FALSE(move_beyond_program(UniqueFd()));
  EXPECT_FALSE(copy_beyond_program(-1).has_value());
}

}  // namespace
}  // namespace ckpt
