// SPDX-License-Identifier: Apache-2.0
// The choice between the agent's two commit protocols, which the test plays.
#include "agent/migration/move_protocol.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/migration/fake_protocol.h"

namespace ckpt::agent {
namespace {

class MoveProtocolsTest : public ::testing::Test {
 protected:
  FakeProtocol switches_;
  FakeProtocol gangs_;
  MoveProtocols protocols_{switches_, gangs_};
};

TEST_F(MoveProtocolsTest, MessageIsPassedToTheProtocolNamedInTheMessage) {
  EXPECT_EQ(&protocols_.of(wire::CommitKind::kHandover), &switches_);
  EXPECT_EQ(&protocols_.of(wire::CommitKind::kGang), &gangs_);
}

TEST_F(MoveProtocolsTest, OpenMovesOfBothProtocolsAreFound) {
  switches_.open = {1};
  gangs_.open = {2};
  switches_.sent = {11};
  gangs_.sent = {12};
  EXPECT_TRUE(protocols_.is_open(1) && protocols_.is_open(2));
  EXPECT_FALSE(protocols_.is_open(3));
  EXPECT_TRUE(protocols_.sends(11) && protocols_.sends(12));
  EXPECT_FALSE(protocols_.sends(13));
}

TEST_F(MoveProtocolsTest, LimitsAreSetInTheProtocolThatKnowsTheMove) {
  EXPECT_TRUE(protocols_.set_limits({}));
  EXPECT_EQ(gangs_.limits_set, 0);
  switches_.limits_answer = Error(ErrorCode::kNotFound, "no source");
  EXPECT_TRUE(protocols_.set_limits({}));
  EXPECT_EQ(gangs_.limits_set, 1);
  gangs_.limits_answer = Error(ErrorCode::kNotFound, "no source");
  EXPECT_EQ(protocols_.set_limits({}).error().code(), ErrorCode::kNotFound);
}

TEST_F(MoveProtocolsTest, ErrorOtherThanNotFoundOfTheFirstProtocolIsReturned) {
  switches_.limits_answer = Error(ErrorCode::kRefused, "no");
  EXPECT_EQ(protocols_.set_limits({}).error().code(), ErrorCode::kRefused);
  EXPECT_EQ(gangs_.limits_set, 0);
}

TEST_F(MoveProtocolsTest, DescriptionComesOnlyFromTheNamedProtocol) {
  switches_.facts.emplace().job = 1;
  wire::DescribeHandover request;
  EXPECT_EQ(protocols_.describe(request)->job, 1U);
  request.of_ranks = true;
  EXPECT_FALSE(protocols_.describe(request));
  gangs_.facts.emplace().job = 2;
  EXPECT_EQ(protocols_.describe(request)->job, 2U);
}

}  // namespace
}  // namespace ckpt::agent
