// SPDX-License-Identifier: Apache-2.0
// Decisions of the modes that need no process: limits of a target, of a pause, and the work of a pause.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/migration/modes/cooperative_mode.h"
#include "agent/migration/modes/process_image.h"
#include "agent/migration/modes/restored_process.h"
#include "agent/migration/modes/swap_mode.h"
#include "libckpt/protocol/wire/image_messages.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

TEST(CheckNeeds, TargetMustAllowTheMappingsOfTheProgramAndOfTheRestore) {
  wire::MoveNeeds needs;
  needs.most_mappings = 60'000;
  EndpointPayload target;
  EXPECT_TRUE(check_needs(needs, target)) << "its limit is not known";
  target.max_mappings = 65'530;
  EXPECT_TRUE(check_needs(needs, target));
  target.max_mappings = 60'001;
  EXPECT_EQ(check_needs(needs, target).error().code(), ErrorCode::kRefused);
  target.max_mappings = 100;
  EXPECT_EQ(check_needs(needs, target).error().code(), ErrorCode::kRefused);
}

TEST(CheckNeeds, ProgramWithConnectionsIsNotSentToAnOlderAgent) {
  wire::MoveNeeds needs;
  EndpointPayload target;
  EXPECT_TRUE(check_needs(needs, target));
  needs.has_connections = true;
  EXPECT_EQ(check_needs(needs, target).error().code(), ErrorCode::kRefused);
  target.restores_connections = true;
  EXPECT_TRUE(check_needs(needs, target));
}

TEST(CheckNeeds, ProgramWhoseConnectionsEndIsNotSentToAnOlderAgent) {
  wire::MoveNeeds needs;
  EndpointPayload target;
  needs.resets_connections = true;
  EXPECT_EQ(check_needs(needs, target).error().code(), ErrorCode::kRefused);
  target.resets_connections = true;
  EXPECT_TRUE(check_needs(needs, target));
}

TEST(CheckNeeds, JobWithNamespacesIsNotSentToAnOlderAgent) {
  wire::MoveNeeds needs;
  needs.has_own_namespaces = true;
  EndpointPayload target;
  EXPECT_EQ(check_needs(needs, target).error().code(), ErrorCode::kRefused);
  target.restores_namespaces = true;
  EXPECT_TRUE(check_needs(needs, target));
}

wire::MigrationPlan plan_within(Nanos limit) {
  wire::MigrationPlan plan;
  plan.spec.job = 3;
  plan.spec.argv = {"program"};
  plan.spec.ranks.emplace_back();
  plan.target_ranks.emplace_back();
  plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  plan.session_token.resize(wire::kSessionTokenBytes);
  plan.options.if_not_converged = wire::NotConverged::kAbort;
  plan.options.max_downtime_ns = limit;
  return plan;
}

JobOperation move_within(Nanos limit) {
  return JobOperation::migration({1, 3, 5, {}, wire::encode(plan_within(limit))});
}

TEST(Connections, MoveUsesItsOwnConnectionsSettingAndImagesUseTheSettingOfTheJob) {
  wire::MigrationPlan plan = plan_within(0);
  plan.options.connections = wire::Connections::kReset;
  EXPECT_TRUE(JobOperation::migration({1, 3, 5, {}, wire::encode(plan)}).resets_connections());
  plan.spec.connections = wire::Connections::kReset;
  plan.options.connections = wire::Connections::kRefuse;
  EXPECT_FALSE(JobOperation::migration({1, 3, 5, {}, wire::encode(plan)}).resets_connections());
  EXPECT_TRUE(JobOperation::snapshot(plan.spec, 5).resets_connections());
  EXPECT_TRUE(JobOperation::restore(plan.spec).resets_connections());
  EXPECT_FALSE(JobOperation::snapshot(wire::JobSpec(), 5).resets_connections());
}

TEST(CheckPause, PauseBeyondItsLimitIsAborted) {
  const auto operation = move_within(1000 * kNanosPerMs);
  EXPECT_TRUE(check_pause(operation, now_ns()));
  EXPECT_TRUE(check_pause(operation, 0)) << "the pause's beginning is not known";
  const auto late = check_pause(operation, now_ns() - 1000 * kNanosPerMs);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ErrorCode::kAborted);
  EXPECT_NE(late.error().to_string().find("1000 ms"), std::string::npos);
}

TEST(SwapWork, MemoryIsFilledInThePauseOnlyIfTheDriverCannotImportIt) {
  EXPECT_EQ(swap_work(500, false)[PauseTerm::kFill].bytes, 500U);
  EXPECT_EQ(swap_work(500, true)[PauseTerm::kFill].bytes, 0U);
  EXPECT_TRUE(swap_work(500, true).saves_beside_copy());
}

TEST(ImageOrder, RankWithPeersIsStoredOnlyAsAPartOfASet) {
  wire::TakeSnapshot order;
  wire::JobSpec job;
  EXPECT_TRUE(order.fits(job));
  job.gang.id = 7;
  EXPECT_FALSE(order.fits(job));
  order.set = 3;
  EXPECT_TRUE(order.fits(job));
}

TEST(HostStateFile, StateIsReadAsSaved) {
  const TemporaryFolder folder;
  const UniqueFd memory(::memfd_create("state", MFD_CLOEXEC));
  ASSERT_TRUE(memory);
  ASSERT_EQ(::pwrite(memory.get(), "abcdef", 6, 0), 6);
  ASSERT_TRUE(save_host_state(memory.get(), 4, folder / "state"));
  const auto loaded = load_host_state(folder / "state");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  char read[8] = {};
  EXPECT_EQ(::pread(loaded->get(), read, sizeof read, 0), 4) << "no more than its size";
  EXPECT_EQ(std::string(read), "abcd");
}

TEST(HostStateFile, StateShorterThanStatedIsDamaged) {
  const TemporaryFolder folder;
  const UniqueFd memory(::memfd_create("state", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(memory.get(), "abcdef", 6, 0), 6);
  EXPECT_EQ(save_host_state(memory.get(), 7, folder / "state").error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ckpt::agent
