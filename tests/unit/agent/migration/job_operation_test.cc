// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/job_operation.h"

#include <gtest/gtest.h>

#include "agent/migration/modes/restored_process.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {
namespace {

constexpr wire::MigrationId kMovedAs = wire::make_id(7, 42);

wire::JobSpec spec_of(MigrationMode mode) {
  wire::JobSpec spec;
  spec.job = 3;
  spec.incarnation = 5;
  spec.mode = mode;
  spec.argv = {"program"};
  spec.ranks.emplace_back();
  spec.ranks.front().gpu_index = 1;
  return spec;
}

migration::HandoverInfo info_of(MigrationMode mode, const std::string& target_node) {
  wire::MigrationPlan plan;
  plan.spec = spec_of(mode);
  plan.target_ranks.emplace_back();
  plan.target_ranks.front().gpu_index = 2;
  plan.source_node = "a";
  plan.target_node = target_node;
  plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  plan.session_token.resize(wire::kSessionTokenBytes);
  return {kMovedAs, 3, 5, {}, wire::encode(plan)};
}

PauseKind kind_of(MigrationMode mode, const std::string& target_node) {
  return JobOperation::migration(info_of(mode, target_node)).pause_kind();
}

TEST(JobOperationTest, MigrationUsesThePauseKindOfItsPlan) {
  EXPECT_EQ(kind_of(MigrationMode::kCooperative, "a"), PauseKind::kCooperative);
  EXPECT_EQ(kind_of(MigrationMode::kTransparent, "a"), PauseKind::kSwap);
  EXPECT_EQ(kind_of(MigrationMode::kTransparent, "b"), PauseKind::kProcess);
  EXPECT_EQ(kind_of(MigrationMode::kAdopted, "a"), PauseKind::kAdoptedSwap);
  EXPECT_EQ(kind_of(MigrationMode::kAdopted, "b"), PauseKind::kAdoptedProcess);
  const auto operation = JobOperation::migration(info_of(MigrationMode::kTransparent, "a"));
  EXPECT_EQ(operation.name(), wire::migration_text(kMovedAs));
  EXPECT_EQ(operation.number(), kMovedAs);
  EXPECT_EQ(operation.next(), 6U);
  EXPECT_EQ(operation.source_gpu().value(), 1U);
  EXPECT_EQ(operation.target_gpu().value(), 2U);
}

// A restore that takes far longer than expected, or exceeds the pause's limit, is given up. A restore from an
// image is not given up.
TEST(RestoreTime, RestoreIsAbandonedAfterThePauseLimitOrFarBeyondTheExpectedTime) {
  migration::HandoverInfo info = info_of(MigrationMode::kTransparent, "b");
  const wire::CostLine line(100 * kNanosPerMs, 10 * kNanosPerMs);
  RestoreWork work;
  work.image_bytes = work.restored_bytes = 10 << 20;
  work.paused_ns = now_ns();
  const auto of = [&](const JobOperation& operation) { return restore_time(line, operation, work); };
  EXPECT_EQ(of(JobOperation::migration(info)).value(), Milliseconds(5000)) << "the least";
  work.restored_bytes = 100 << 20;
  EXPECT_EQ(of(JobOperation::migration(info)).value(), Milliseconds(11'000)) << "ten times what is expected";
  work.size.threads = 4000;
  EXPECT_EQ(of(JobOperation::migration(info)).value(), Milliseconds(21'000)) << "its threads, too";
  EXPECT_GE(of(JobOperation::restore(spec_of(MigrationMode::kTransparent))).value(), Milliseconds(60'000));

  auto plan = *wire::decode_plan(info.plan);
  plan.options.if_not_converged = wire::NotConverged::kAbort;
  plan.options.max_downtime_ns = 3600'000 * kNanosPerMs;
  info.plan = wire::encode(plan);
  EXPECT_EQ(of(JobOperation::migration(info)).value(), Milliseconds(21'000));
  plan.options.max_downtime_ns = 2000 * kNanosPerMs;
  info.plan = wire::encode(plan);
  EXPECT_LE(of(JobOperation::migration(info)).value(), Milliseconds(2000));
  work.paused_ns = now_ns() - 2000 * kNanosPerMs;
  const auto late = of(JobOperation::migration(info));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ErrorCode::kAborted);
  EXPECT_NE(late.error().to_string().find("limit of 2000 ms"), std::string::npos) << late.error().to_string();
  work.paused_ns = 0;  // a pause that an earlier agent was informed of
  EXPECT_EQ(of(JobOperation::migration(info)).value(), Milliseconds(21'000));
}

TEST(JobOperationTest, MigrationWithoutAPlanIsCooperativeAndHasNoGpu) {
  const auto operation = JobOperation::migration(migration::HandoverInfo(kMovedAs, 3, 5, {}, {}));
  EXPECT_EQ(operation.pause_kind(), PauseKind::kCooperative);
  EXPECT_EQ(operation.job(), 3U);
  EXPECT_FALSE(operation.source_gpu());
  EXPECT_FALSE(operation.target_gpu());
}

TEST(JobOperationTest, SnapshotsOfAJobShareAnOperationName) {
  const wire::JobSpec spec = spec_of(MigrationMode::kTransparent);
  const auto first = JobOperation::snapshot(spec, 8);
  const auto second = JobOperation::snapshot(spec, 9);
  EXPECT_EQ(first.name(), second.name());
  EXPECT_EQ(first.number(), 0U);
  EXPECT_EQ(first.base(), 8U);
  EXPECT_EQ(first.pause_kind(), PauseKind::kProcess);
}

TEST(JobOperationTest, RestoresHaveUniqueNamesAndNumbers) {
  const wire::JobSpec spec = spec_of(MigrationMode::kTransparent);
  const auto first = JobOperation::restore(spec);
  const auto second = JobOperation::restore(spec);
  EXPECT_NE(first.name(), second.name());
  EXPECT_NE(first.number(), second.number());
  EXPECT_GT(first.number(), wire::make_id(wire::kMaxTaggedNumber, wire::kMaxIdTag));
  EXPECT_EQ(first.next(), spec.incarnation);
  EXPECT_EQ(first.target_gpu().value(), 1U);
}

}  // namespace
}  // namespace ckpt::agent
