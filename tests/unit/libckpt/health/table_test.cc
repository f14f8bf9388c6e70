// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libckpt/health/tables.h"

namespace ckpt::health {
namespace {

using testing::HasSubstr;

constexpr char kXidHeader[] = "xid,name,cause,memory_readable,action,evacuation,source\n";
constexpr char kRecoveryHeader[] = "value,nvml_name,xid154_text,evacuation,memory_readable,meaning\n";

std::string error_of(const std::string& text) {
  auto table = XidTable::built_in();
  const auto taken = table.override_with(text, "my.csv");
  return taken ? "" : taken.error().message();
}

TEST(XidTable, BuiltInTableIsComplete) {
  const auto table = XidTable::built_in();
  EXPECT_EQ(table.xids().size(), 120U);
  EXPECT_EQ(table.recoveries().size(), 8U);
  EXPECT_EQ(table.nvlink5().size(), 94U);
  EXPECT_EQ(table.xid(94)->name, "ROBUST_CHANNEL_CONTAINED_ERROR");
  EXPECT_EQ(table.xid(1), nullptr);
  EXPECT_EQ(table.recovery(4)->name, "DRAIN_AND_RESET");
  EXPECT_TRUE(table.nvlink5().front().info_v2.matches(0x00000001));
  EXPECT_FALSE(table.nvlink5().front().info_v2.matches(0x00000002));
}

TEST(XidTable, AFileReplacesAndAddsRowsByXid) {
  auto table = XidTable::built_in();
  const std::string text = std::string(kXidHeader) +
                           "63,OURS,memory,yes,drain_then_reset,restore,we replace\n"
                           "777,NEW,app,others,none,none,\n";
  ASSERT_TRUE(table.override_with(text, "my.csv").has_value());
  EXPECT_EQ(table.xid(63)->evacuation, Outcome::kRestore);
  EXPECT_EQ(table.xid(63)->name, "OURS");
  EXPECT_EQ(table.origin_of_xid(63), "my.csv");
  EXPECT_EQ(table.origin_of_xid(64), "");
  EXPECT_EQ(table.xid(777)->name, "NEW");
  EXPECT_EQ(table.xids().size(), 121U);
  ASSERT_TRUE(
      table.override_with(std::string(kRecoveryHeader) + "3,DRAIN_P2P,,restore,no,\n", "r.csv").has_value());
  EXPECT_EQ(table.recovery(3)->evacuation, Outcome::kRestore);
}

TEST(XidTable, ErrorsNameLineAndColumn) {
  const std::string header = kXidHeader;
  EXPECT_THAT(error_of(""), HasSubstr("my.csv:1:1: the first line must be the header"));
  EXPECT_THAT(error_of("xid,name\n"), HasSubstr("header"));
  EXPECT_THAT(error_of(header + "x,N,app,yes,none,none,"), HasSubstr("my.csv:2:1:"));
  EXPECT_THAT(error_of(header + "-1,N,app,yes,none,none,"), HasSubstr("my.csv:2:1:"));
  EXPECT_THAT(error_of(header + "100000,N,app,yes,none,none,"), HasSubstr("my.csv:2:1:"));
  EXPECT_THAT(error_of(header + "5,,app,yes,none,none,"), HasSubstr("my.csv:2:3:"));
  EXPECT_THAT(error_of(header + "5,N,app,maybe,none,none,"),
              HasSubstr("my.csv:2:9: \"maybe\" must be one of yes,"));
  EXPECT_THAT(error_of(header + "5,N,app,yes,burn,none,"), HasSubstr("my.csv:2:13:"));
  EXPECT_THAT(error_of(header + "5,N,app,yes,none,kill,"), HasSubstr("my.csv:2:18:"));
  EXPECT_THAT(error_of(header + "5,N,app,yes,none,none"), HasSubstr("6 fields instead of 7"));
  EXPECT_THAT(error_of(header + "5,N,app,yes,none,none,,,"), HasSubstr("my.csv:2:24: 9 fields"));
  EXPECT_THAT(error_of(header + "5,N\x01,app,yes,none,none,"), HasSubstr("my.csv:2:3:"));
  EXPECT_THAT(error_of(header + "5,N,app,yes,none,none,\n\n5,N,app,yes,none,none,\n"),
              HasSubstr("my.csv:4:1: duplicate row for 5"));
  EXPECT_THAT(error_of(header + "5,N,app,yes,none,none," + std::string(401, 'x')), HasSubstr("at most 400"));
}

TEST(XidTable, AnInvalidFileChangesNothing) {
  auto table = XidTable::built_in();
  const auto taken = table.override_with(
      std::string(kXidHeader) + "63,OURS,memory,yes,none,restore,\n64,X,app,yes,none,kill,\n", "my.csv");
  EXPECT_FALSE(taken.has_value());
  EXPECT_EQ(table.xid(63)->evacuation, Outcome::kLive);
}

TEST(XidTable, AMissingFileIsAnError) {
  auto table = XidTable::built_in();
  EXPECT_FALSE(table.override_with_file("/nowhere/my.csv").has_value());
}

}  // namespace
}  // namespace ckpt::health
