// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/cooperative_mode.h"

#include <gtest/gtest.h>

namespace ckpt::agent {
namespace {

JobOperation move_as(std::vector<std::string> new_argv) {
  wire::MigrationPlan plan;
  plan.spec.job = 3;
  plan.spec.argv = {"program"};
  plan.spec.ranks.emplace_back();
  plan.target_ranks.emplace_back();
  plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  plan.session_token.resize(wire::kSessionTokenBytes);
  plan.options.new_argv = std::move(new_argv);
  return JobOperation::migration({1, 3, 5, {}, wire::encode(plan)});
}

TEST(CooperativeSourceTest, OlderTargetThatWouldStartTheOldProgramIsRefused) {
  const EndpointPayload older;
  EndpointPayload newer;
  newer.starts_programs = true;
  CooperativeSource other_program(move_as({"next"}));
  EXPECT_TRUE(other_program.check_target(newer).has_value());
  const auto refused = other_program.check_target(older);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  CooperativeSource own_program(move_as({}));
  EXPECT_TRUE(own_program.check_target(older).has_value());
}

}  // namespace
}  // namespace ckpt::agent
