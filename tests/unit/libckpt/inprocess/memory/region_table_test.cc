// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/memory/region_table.h"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(RegionTable, RegionThatContainsARangeIsFound) {
  RegionTable table;
  const Region a = *table.add(0x1000, 0x1000);
  const Region b = *table.add(0x3000, 0x2000);
  EXPECT_EQ(table.containing(0x1000, 0x1000)->id, a.id);
  EXPECT_EQ(table.containing(0x1fff, 1)->id, a.id);
  EXPECT_EQ(table.containing(0x4000, 0x1000)->id, b.id);
  EXPECT_EQ(table.containing(0x1800, 0x900), nullptr) << "it ends behind the region";
  EXPECT_EQ(table.containing(0x2000, 1), nullptr);
  EXPECT_EQ(table.containing(0xfff, 1), nullptr);
  EXPECT_EQ(table.containing(0x3000, ~0ull), nullptr) << "wraps around";
}

TEST(RegionTable, OverlapIsRefused) {
  RegionTable table;
  ASSERT_TRUE(table.add(0x2000, 0x1000).has_value());
  EXPECT_FALSE(table.add(0x1000, 0x1001).has_value());
  EXPECT_FALSE(table.add(0x2fff, 0x1000).has_value());
  EXPECT_FALSE(table.add(0x2100, 0x100).has_value());
  EXPECT_FALSE(table.add(0x1000, 0x9000).has_value());
  EXPECT_FALSE(table.add(0x9000, 0).has_value());
  EXPECT_FALSE(table.add(~0ull - 10, 100).has_value());
  EXPECT_TRUE(table.add(0x1000, 0x1000).has_value());
  EXPECT_TRUE(table.add(0x3000, 0x1000).has_value());
}

TEST(RegionTable, IdsAreNeverReusedAndGenerationsIncrease) {
  RegionTable table;
  const Region first = *table.add(0x1000, 0x1000);
  EXPECT_NE(first.id, 0u);
  EXPECT_TRUE(table.remove(first.id));
  EXPECT_FALSE(table.remove(first.id));
  EXPECT_EQ(table.find(first.id), nullptr);
  const Region second = *table.add(0x1000, 0x1000);
  EXPECT_GT(second.id, first.id);
  EXPECT_GT(second.generation, first.generation);
  EXPECT_EQ(table.find(second.id)->pointer, 0x1000u);
}

}  // namespace
}  // namespace ckpt
