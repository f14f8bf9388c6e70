// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/machine/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace ckpt {
namespace {

TEST(Cores, UsableCoresMatchTheAffinityOfTheThread) {
  const unsigned before = usable_cores();
  EXPECT_GE(before, 1u);
  unsigned confined = 0;
  std::thread([&confined] {
    cpu_set_t all;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    confined = usable_cores();
  }).join();
  EXPECT_EQ(confined, 1u);
  EXPECT_EQ(usable_cores(), before);
}

}  // namespace
}  // namespace ckpt
