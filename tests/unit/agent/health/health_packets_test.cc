// SPDX-License-Identifier: Apache-2.0
// Tests of the reports of gpumigrate-health: malformed packets are refused.
#include <gtest/gtest.h>

#include "agent/health_helper/messages.h"

namespace ckpt::agent::nvml_watch {
namespace {

TEST(HealthPackets, GpuNamesAreParsed) {
  Report report;
  report.kind = Kind::kGpu;
  set_text(report, "GPU-1 00000000:01:00.0 NVIDIA H200 SXM");
  const auto read = parse_report(wire::encode(report));
  ASSERT_TRUE(read.has_value());
  const GpuName name = gpu_name(*read);
  EXPECT_EQ(name.uuid, "GPU-1");
  EXPECT_EQ(name.bus_id, "00000000:01:00.0");
  EXPECT_EQ(name.model, "NVIDIA H200 SXM");
  set_text(report, "");
  EXPECT_EQ(gpu_name(report).uuid, "");
  set_text(report, "GPU-1");
  EXPECT_EQ(gpu_name(report).bus_id, "");
}

TEST(HealthPackets, ValuesOutOfRangeAreRefused) {
  const auto refused = [](void (*change)(Report&)) {
    Report report;
    change(report);
    return !parse_report(wire::encode(report)).has_value();
  };
  EXPECT_FALSE(refused([](Report&) {}));
  EXPECT_TRUE(refused([](Report& r) { r.kind = static_cast<Kind>(0); }));
  EXPECT_TRUE(refused([](Report& r) { r.kind = static_cast<Kind>(7); }));
  EXPECT_TRUE(refused([](Report& r) { r.gpu = 64; }));
  EXPECT_TRUE(refused([](Report& r) { r.xid = 100000; }));
  EXPECT_TRUE(refused([](Report& r) { r.flags = 128; }));
  EXPECT_TRUE(refused([](Report& r) { r.text = std::string(257, 'x'); }));
}

TEST(HealthPackets, TruncatedAndOverlongPacketsAreRefused) {
  auto bytes = wire::encode(Report());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(parse_report(std::span(bytes).first(size)).has_value()) << size;
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(parse_report(bytes).has_value());
}

TEST(HealthPackets, TheLongestReportFitsIntoAPacket) {
  Report report;
  set_text(report, std::string(2 * kMaxText, 'x'));
  const auto bytes = wire::encode(report);
  EXPECT_LE(bytes.size(), kMaxReportBytes);
  EXPECT_TRUE(parse_report(bytes).has_value());
}

}  // namespace
}  // namespace ckpt::agent::nvml_watch
