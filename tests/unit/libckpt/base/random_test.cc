// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/random.h"

#include <gtest/gtest.h>

#include "libckpt/base/clock.h"

namespace ckpt {
namespace {

TEST(Random, RandomHexHasTwoDigitsPerByteAndDiffers) {
  const std::string a = *random_hex(32);
  const std::string b = *random_hex(32);
  EXPECT_EQ(a.size(), 64u);
  EXPECT_EQ(a.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(a, b);
}

TEST(Clock, ClockNeverGoesBackwards) {
  const Nanos first = now_ns();
  const Nanos second = now_ns();
  EXPECT_GT(first, 0);
  EXPECT_LE(first, second);
}

}  // namespace
}  // namespace ckpt
