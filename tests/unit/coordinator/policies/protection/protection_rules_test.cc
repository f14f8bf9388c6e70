// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/protection/protection_rules.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

TEST(ProtectionRules, ConsecutiveFailuresAreCounted) {
  Protection protection;
  protection = after_snapshot(protection, Error(ErrorCode::kIo, "disk"));
  protection = after_snapshot(protection, Error(ErrorCode::kIo, "disk"));
  EXPECT_EQ(protection.failures, 2U);
  EXPECT_NE(protection.error.find("disk"), std::string::npos);
  protection = after_snapshot(protection, Result<void>(ok()));
  EXPECT_EQ(protection.failures, 0U);
  EXPECT_EQ(protection.error, "");
}

TEST(ProtectionRules, OnlyTransparentJobsHaveAMinimumProtectionInterval) {
  Job job;
  job.spec.mode = MigrationMode::kTransparent;
  EXPECT_TRUE(is_too_often(job, 299'999));
  EXPECT_FALSE(is_too_often(job, 300'000));
  job.spec.mode = MigrationMode::kCooperative;
  EXPECT_FALSE(is_too_often(job, 1'000));
}

TEST(ProtectionRules, TheLastPausePredictsTheNextPause) {
  Job job;
  EXPECT_FALSE(pause_of_last(job));
  job.last_downtime_ms = 8;
  EXPECT_EQ(pause_of_last(job), 8);
  job.snapshot.emplace().pause_ns = 3'000'000;
  EXPECT_EQ(pause_of_last(job), 3);
}

}  // namespace
}  // namespace ckpt::coordinator
