// SPDX-License-Identifier: Apache-2.0
// Packets of gpumigrate-health: invalid ones are refused.
#include <gtest/gtest.h>

#include "agent/health_helper/messages.h"

namespace ckpt::agent::nvml_watch {
namespace {

std::vector<std::byte> bytes_of(const Report& report) {
  const auto bytes = std::as_bytes(std::span(&report, 1));
  return {bytes.begin(), bytes.end()};
}

TEST(HealthPackets, NamesOfGpus) {
  Report report;
  report.kind = Kind::kGpu;
  set_text(report, "GPU-1 00000000:01:00.0 NVIDIA H200 SXM");
  const auto read = parse_report(bytes_of(report));
  ASSERT_TRUE(read.has_value());
  const GpuName name = gpu_name(read.assume_value());
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
    return !parse_report(bytes_of(report)).has_value();
  };
  EXPECT_FALSE(refused([](Report&) {}));
  EXPECT_TRUE(refused([](Report& r) { r.magic = 0; }));
  EXPECT_TRUE(refused([](Report& r) { r.version = 1; }));
  EXPECT_TRUE(refused([](Report& r) { r.kind = static_cast<Kind>(0); }));
  EXPECT_TRUE(refused([](Report& r) { r.kind = static_cast<Kind>(7); }));
  EXPECT_TRUE(refused([](Report& r) { r.gpu = 64; }));
  EXPECT_TRUE(refused([](Report& r) { r.xid = 100000; }));
  EXPECT_TRUE(refused([](Report& r) { r.flags = 128; }));
  EXPECT_TRUE(refused([](Report& r) { r.text_bytes = 257; }));
  const auto bytes = bytes_of(Report{});
  EXPECT_FALSE(parse_report(std::span(bytes).first(bytes.size() - 1)).has_value());
}

}  // namespace
}  // namespace ckpt::agent::nvml_watch
