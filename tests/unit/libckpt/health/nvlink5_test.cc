// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/nvlink5.h"

#include <gtest/gtest.h>

namespace ckpt::health {
namespace {

const XidTable& table() {
  static const XidTable built = XidTable::built_in();
  return built;
}

std::optional<LinkVerdict> decode(std::uint32_t xid, const std::string& unit, std::uint32_t info,
                                  std::uint32_t status, const std::string& severity = "") {
  LinkEvent event;
  event.unit = unit;
  event.info = info;
  event.error_status = status;
  event.severity = severity;
  return decode_link(table(), xid, event);
}

TEST(Nvlink5, ManualExampleIsDecoded) {
  const auto verdict = decode(149, "NETIR_LINK_EVT", 0x004505c6, 0);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->from_table);
  EXPECT_EQ(verdict->severity, LinkSeverity::kLinkFatal);
}

// A word made of each row's own pattern finds this row, in both versions; no less specific row matches it
// instead.
TEST(Nvlink5, EveryTableRowIsFound) {
  for (const Nvlink5Row& row : table().nvlink5()) {
    for (const BitPattern& info : {row.info_v1, row.info_v2}) {
      const std::string unit = row.unit.substr(0, row.unit.find('/'));
      const auto verdict = decode(row.xid, unit, info.value | (0x5a5a5a5a & ~info.mask), row.error_status);
      ASSERT_TRUE(verdict.has_value() && verdict->from_table) << row.xid << " " << row.unit;
      EXPECT_EQ(verdict->severity, row.severity) << row.xid << " " << row.unit << " " << row.error_status;
    }
  }
}

TEST(Nvlink5, TheMostSevereErrorDecides) {
  EXPECT_EQ(decode(144, "SAW_MVB", 0x21, 0x4)->severity, LinkSeverity::kNonFatal);
  EXPECT_EQ(decode(144, "SAW_MVB", 0x21, 0x6)->severity, LinkSeverity::kFatal);
}

// Rows of another unit do not apply to a known unit, even if their patterns would match.
TEST(Nvlink5, RowsOfAnotherUnitAreIgnored) {
  const auto first_of = [](const Nvlink5Row& row) { return row.unit.substr(0, row.unit.find('/')); };
  unsigned tried = 0;
  for (const Nvlink5Row& row : table().nvlink5()) {
    for (const Nvlink5Row& other : table().nvlink5()) {
      if (row.xid != other.xid || row.unit == other.unit || row.error_status == 0) continue;
      const auto verdict = decode(row.xid, first_of(other), row.info_v1.value, row.error_status, "Nonfatal");
      ASSERT_TRUE(verdict) << row.unit << " as " << other.unit;
      const std::string units = "/" + verdict->reason.substr(0, verdict->reason.find(':')) + "/";
      if (verdict->from_table) {
        EXPECT_NE(units.find("/" + first_of(other) + "/"), std::string::npos) << verdict->reason;
      } else {
        EXPECT_EQ(verdict->severity, LinkSeverity::kNonFatal);
      }
      ++tried;
    }
  }
  EXPECT_GT(tried, 0U);
}

TEST(Nvlink5, AFatalMachineEventIsMoreSevereThanALinkEvent) {
  EXPECT_EQ(decode(149, "NETIR_MFDE_EVENT", 0xffffffff, 0x40000000, "Fatal")->severity, LinkSeverity::kFatal);
}

TEST(Nvlink5, UnknownRowsUseTheirSeverityText) {
  EXPECT_EQ(decode(145, "RLW_NEW", 0, 0x40000000, "Nonfatal")->severity, LinkSeverity::kNonFatal);
  EXPECT_EQ(decode(145, "RLW_NEW", 0, 0x40000000, "Fatal")->severity, LinkSeverity::kFatal);
  EXPECT_EQ(decode(149, "NETIR_NEW", 0, 0x40000000, "Fatal")->severity, LinkSeverity::kLinkFatal);
  EXPECT_FALSE(decode(145, "RLW_NEW", 0, 0x40000000, "Odd").has_value());
}

}  // namespace
}  // namespace ckpt::health
