// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/gpu_fault.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kFoundMs = 1'000'000;

Finding finding_of(wire::HealthOutcome outcome) {
  Finding finding;
  finding.node = "a";
  finding.reported.time_ms = kFoundMs;
  finding.reported.reason = "Xid 94";
  finding.reported.outcome = outcome;
  return finding;
}

TEST(GpuFault, GpuWithoutFindingOrCordonHasNoFault) {
  EXPECT_FALSE(fault_of(GpuHealth(), kFoundMs));
}

TEST(GpuFault, RecentFindingClosesTheGpuForAWhile) {
  const Finding finding = finding_of(wire::HealthOutcome::kLive);
  GpuHealth gpu;
  gpu.newest_suspicion = &finding;
  const auto fault = fault_of(gpu, kFoundMs + kSuspicionMs - 1);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->closed_until_ms, kFoundMs + kSuspicionMs);
  EXPECT_TRUE(fault->forbids_staying);
  EXPECT_FALSE(fault->forbids_reading);
  EXPECT_FALSE(fault->cordoned);
  EXPECT_FALSE(fault_of(gpu, kFoundMs + kSuspicionMs)) << "it is too old";
  gpu.forgiven_ms = kFoundMs;
  EXPECT_FALSE(fault_of(gpu, kFoundMs + 1)) << "it was forgiven";
  gpu.forgiven_ms = kFoundMs - 1;
  EXPECT_TRUE(fault_of(gpu, kFoundMs + 1));
  gpu.is_policy_paused = true;
  EXPECT_FALSE(fault_of(gpu, kFoundMs + 1));
}

TEST(GpuFault, CordonCountsWithoutARecentFinding) {
  GpuHealth gpu;
  gpu.cordon = {"too many errors", 5};
  gpu.is_policy_paused = true;
  const auto alone = fault_of(gpu, kFoundMs);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->time_ms, 5);
  EXPECT_EQ(to_text(*alone), "too many errors (cordoned)");
  const Finding finding = finding_of(wire::HealthOutcome::kRestore);
  gpu.newest_suspicion = &finding;
  const auto old = fault_of(gpu, kFoundMs + 2 * kSuspicionMs);
  ASSERT_TRUE(old);
  EXPECT_EQ(old->reason, "Xid 94");
  EXPECT_TRUE(old->forbids_reading);
  EXPECT_FALSE(old->forbids_staying) << "the cordon decides";
  EXPECT_EQ(old->closed_until_ms, 0);
}

TEST(GpuFault, FindingThatCausedACordonDoesNotForbidStaying) {
  Finding finding = finding_of(wire::HealthOutcome::kLive);
  finding.reported.cordon = true;
  GpuHealth gpu;
  gpu.newest_suspicion = &finding;
  EXPECT_FALSE(fault_of(gpu, kFoundMs + 1)->forbids_staying);
}

}  // namespace
}  // namespace ckpt::coordinator
