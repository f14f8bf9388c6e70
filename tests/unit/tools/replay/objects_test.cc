// SPDX-License-Identifier: Apache-2.0
// The traced program's handles and addresses in the replay.
#include "tools/replay/objects.h"

#include <gtest/gtest.h>

namespace ckpt::replay {
namespace {

TEST(ReplayObjects, UnknownHandleIsItself) {
  Objects objects;
  EXPECT_EQ(objects.handle(2), 2U);  // the per-thread default stream
  objects.learn_handle(0x1000, 0x2000);
  EXPECT_EQ(objects.handle(0x1000), 0x2000U);
}

TEST(ReplayObjects, AddressWithinARangeKeepsItsOffset) {
  Objects objects;
  objects.learn_range(0x1000, 0x9000, 0x100);
  EXPECT_EQ(objects.address(0x10ff), 0x90ffU);
  EXPECT_FALSE(objects.address(0x1100));
  EXPECT_FALSE(objects.address(0xfff));
}

TEST(ReplayObjects, NewRangeReplacesWhatItOverlaps) {
  Objects objects;
  objects.learn_range(0x1000, 0x9000, 0x100);
  objects.learn_range(0x1080, 0x5000, 0x100);
  EXPECT_EQ(objects.address(0x1080), 0x5000U);
  EXPECT_FALSE(objects.address(0x1000));
  objects.forget_range(0x1090);
  EXPECT_FALSE(objects.address(0x1080));
}

TEST(ReplayObjects, RangeThatEndsBeyondTheLastAddressIsNone) {
  Objects objects;
  objects.learn_range(~std::uint64_t{0} - 1, 0x9000, 0x100);
  EXPECT_FALSE(objects.address(~std::uint64_t{0}));
}

TEST(ReplayObjects, MissingObjectIsThereOnceItIsLearnt) {
  Objects objects;
  objects.miss(0x1000);
  EXPECT_TRUE(objects.is_missing(0x1000));
  objects.learn_handle(0x1000, 0x2000);
  EXPECT_FALSE(objects.is_missing(0x1000));
}

TEST(ReplayObjects, ScratchGrowsAndHasALimit) {
  Objects objects;
  void* small = objects.scratch(10);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(objects.scratch(5), small);
  EXPECT_NE(objects.scratch(1 << 20), nullptr);
  EXPECT_EQ(objects.scratch(kMaxScratch + 1), nullptr);
}

}  // namespace
}  // namespace ckpt::replay
