// SPDX-License-Identifier: Apache-2.0
// Tests every form of line that kernel_log.h lists, and lines that must not be recognized.
#include "libckpt/health/kernel_log.h"

#include <gtest/gtest.h>

namespace ckpt::health {
namespace {

PciAddress pci(std::uint32_t domain, std::uint32_t bus) {
  PciAddress address;
  address.domain = domain;
  address.bus = bus;
  return address;
}

TEST(KernelLog, XidWithoutAProcessIsParsed) {
  const auto line = parse_xid_line(
      "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->xid, 79U);
  EXPECT_EQ(line->gpu, pci(0, 1));
  EXPECT_EQ(line->pid, 0);
  EXPECT_EQ(line->detail, "GPU has fallen off the bus.");
}

TEST(KernelLog, XidWithInstanceProcessAndFlagsIsParsed) {
  const auto line = parse_xid_line(
      "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: "
      "Yes");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->xid, 94U);
  EXPECT_EQ(line->pid, 7194);
  EXPECT_EQ(line->gpu_instance, 5U);
  EXPECT_FALSE(line->compute_instance.has_value());
  EXPECT_EQ(line->reset_required, false);
  EXPECT_EQ(line->drain_required, true);
}

TEST(KernelLog, XidWithComputeInstanceAndCauseIsParsed) {
  const auto line = parse_xid_line(
      "NVRM: Xid (PCI:0000:01:00 GPU-I:02 GPU-CI:00): 45, pid=12, name=python3, Ch 00000008 caused by "
      "previous Xid 31");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->compute_instance, 0U);
  EXPECT_EQ(line->caused_by, 31U);
  EXPECT_EQ(line->detail, "Ch 00000008 caused by previous Xid 31");
}

TEST(KernelLog, RecoveryActionIsParsedByNumberAndNotByText) {
  for (const char* words : {"GPU Reset Required", "PF FLR", "whatever"}) {
    const auto line = parse_xid_line(
        std::string("NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (") +
        words + ")");
    ASSERT_TRUE(line.has_value());
    EXPECT_EQ(line->gpu, pci(8, 1));
    EXPECT_EQ(line->recovery_from, 0U);
    EXPECT_EQ(line->recovery_to, 1U);
  }
}

TEST(KernelLog, NvLinkEventIsParsed) {
  const auto line = parse_xid_line(
      "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0 0x0)");
  ASSERT_TRUE(line.has_value() && line->link.has_value());
  EXPECT_EQ(line->link->unit, "NETIR_LINK_EVT");
  EXPECT_EQ(line->link->severity, "Fatal");
  EXPECT_EQ(line->link->link, 8U);
  EXPECT_EQ(line->link->info, 0x004505c6U);
  EXPECT_EQ(line->link->error_status, 0U);
}

TEST(KernelLog, LostGpuIsParsedFromOneLineOrFromThreeLines) {
  KernelLogParser parser;
  auto events = parser.parse("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<LostLine>(events[0]).gpu, pci(0, 0x18));
  EXPECT_TRUE(parser.parse("NVRM: The NVIDIA GPU 0000:19:00.0").empty());
  EXPECT_TRUE(parser.parse("NVRM: (PCI ID: 10de:20b0) installed in this system has").empty());
  events = parser.parse("NVRM: fallen off the bus and is not responding to commands.");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<LostLine>(events[0]).gpu, pci(0, 0x19));
  events = parser.parse(
      "NVRM: The NVIDIA GPU 0000:1a:00.0\nNVRM: (PCI ID: 10de:20b0) installed in this system has\n"
      "NVRM: fallen off the bus and is not responding to commands.");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<LostLine>(events[0]).gpu, pci(0, 0x1a));
  // Up to two other lines may come between the two lines.
  for (const int between : {2, 3}) {
    EXPECT_TRUE(parser.parse("NVRM: The NVIDIA GPU 0000:1b:00.0").empty());
    for (int i = 0; i < between; ++i) EXPECT_TRUE(parser.parse("something else").empty());
    EXPECT_EQ(parser.parse("NVRM: fallen off the bus and is not responding to commands.").size(),
              between == 2 ? 1U : 0U);
  }
  // Without its first line the message names no GPU. A first line much earlier does not count.
  EXPECT_TRUE(parser.parse("NVRM: fallen off the bus and is not responding to commands.").empty());
  EXPECT_TRUE(parser.parse("NVRM: The NVIDIA GPU 0000:19:00.0").empty());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(parser.parse("something else").empty());
  EXPECT_TRUE(parser.parse("NVRM: fallen off the bus and is not responding to commands.").empty());
}

TEST(KernelLog, GpuIdentityIsParsed) {
  KernelLogParser parser;
  const auto events = parser.parse("NVRM: GPU at PCI:0000:01:00: GPU-0f57a3cd-0f02-4f2c-a1d3-112233445566");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<IdentityLine>(events[0]).uuid, "GPU-0f57a3cd-0f02-4f2c-a1d3-112233445566");
  EXPECT_TRUE(parser.parse("NVRM: GPU at PCI:0000:01:00: GPU-0f57a3cd-0f02").empty());
  EXPECT_TRUE(parser.parse("NVRM: GPU at PCI:0000:01:00: GPU-<script>02-4f2c-a1d3-112233445566abc").empty());
}

TEST(KernelLog, DmesgTimestampIsIgnored) {
  EXPECT_TRUE(
      parse_xid_line("[   12.345678] NVRM: Xid (PCI:0000:01:00): 13, pid=5, name=a, Graphics Exception")
          .has_value());
}

TEST(KernelLog, OnlyLinesOfTheDriverAreParsed) {
  for (const char* text : {
           "usb 1-1: Product: NVRM: Xid (PCI:0000:01:00): 79, pid=1",
           "[x] NVRM: Xid (PCI:0000:01:00): 79, pid=1",
           " NVRM: Xid (PCI:0000:01:00): 79",
           "NVRM: Xid (PCI:0000:01): 79, pid=1",
           "NVRM: Xid (PCI:0000:01:00: 79, pid=1",
           "NVRM: Xid (PCI:0000:01:00): , pid=1",
           "NVRM: Xid (PCI:0000:01:00): 0, pid=1",
           "NVRM: Xid (PCI:0000:01:00): 100000, pid=1",
           "NVRM: Xid (PCI:0000:01:00): -79, pid=1",
           "NVRM: Xid (PCI:0000:01:00): 79x, pid=1",
           "NVRM: Xid (PCI:123456789:01:00): 79, pid=1",
           "NVRM: Xid (PCI:0000:01:00 GPU-I:): 79, pid=1",
           "NVRM: Xid",
           "NVRM: ",
           "",
       }) {
    EXPECT_FALSE(parse_xid_line(text).has_value()) << text;
  }
}

TEST(KernelLog, FlagsInAProcessNameAreIgnored) {
  const auto line = parse_xid_line(
      "NVRM: Xid (PCI:0000:01:00): 94, pid=7, name=a, b RST: Yes, D-RST: Yes, Contained: SM (0x1). RST: No, "
      "D-RST: No");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->reset_required, false);
  EXPECT_EQ(line->drain_required, false);
}

TEST(KernelLog, PidsOutOfRangeAreIgnored) {
  EXPECT_EQ(parse_xid_line("NVRM: Xid (PCI:0000:01:00): 13, pid=99999999999, name=x, y")->pid, 0);
  EXPECT_EQ(parse_xid_line("NVRM: Xid (PCI:0000:01:00): 13, pid=-4, name=x, y")->pid, 0);
  EXPECT_EQ(parse_xid_line("NVRM: Xid (PCI:0000:01:00): 13")->pid, 0);
}

TEST(KernelLog, KernelLogRecordsAreParsed) {
  const auto record =
      parse_record("4,4711,123456789,-,caller=T12;NVRM: a\\x0aNVRM: b\\xzz\n SUBSYSTEM=pci\n");
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->facility, 0U);
  EXPECT_EQ(record->sequence, 4711U);
  EXPECT_EQ(record->time_us, 123456789);
  EXPECT_EQ(record->text, "NVRM: a\nNVRM: b\\xzz");
  EXPECT_EQ(parse_record("12,1,1,-;written by a program")->facility, 1U);
  EXPECT_EQ(parse_record("4,1,1,-;" + std::string(2 * kMaxRecordBytes, 'x'))->text.size(),
            kMaxRecordBytes - 8);
  for (const char* text : {"", "6", "6,", "6,1", "6,1,2", "6,1,2,-", "x,1,2,-;a", "6,-1,2,-;a", "6,1,2;a",
                           "6,99999999999999999999999,2,-;a", "-6,1,2,-;a"})
    EXPECT_FALSE(parse_record(text).has_value()) << text;
}

TEST(KernelLog, PciAddressesAreParsed) {
  EXPECT_EQ(parse_pci("00000000:18:00.0"), pci(0, 0x18));
  EXPECT_EQ(parse_pci("PCI:0008:01:00"), pci(8, 1));
  EXPECT_EQ(pci(8, 0x1a).to_string(), "0008:1a:00");
  for (const char* text : {"", "0000:01", "0000:01:00x", "0000:001:00", ":01:00"})
    EXPECT_FALSE(parse_pci(text).has_value()) << text;
}

}  // namespace
}  // namespace ckpt::health
