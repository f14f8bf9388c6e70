// SPDX-License-Identifier: Apache-2.0
// Frames about ranks on the agent's connection to a coordinator that the test plays.
#include "agent/coordinator_link/gang_orders.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/coordinator_link/linked_agent.h"
#include "tests/unit/agent/migration/fake_gang.h"
#include "tests/unit/agent/migration/fake_ports.h"

namespace ckpt::agent {
namespace {

class GangOrdersTest : public WithContext<LinkedAgent> {
 protected:
  void SetUp() override {
    orders_.emplace(*link_, node_.moves, io_.get_executor());
    connect();
  }
  std::shared_ptr<FileWatch> files_ = FileWatch::create(io_.get_executor()).value();
  asio::thread_pool records_{1};
  FakeOwner owner_;
  JobEnvironment environment_{config_, io_.get_executor(), *files_, "keeper", owner_, records_};
  JobTable jobs_{environment_};
  MigrationContext context_ = context(jobs_);
  GangLink port_{*link_};
  FakeGangNode node_{io_, disk_, folder_.path(), context_, port_};
  std::optional<GangOrders> orders_;
};

TEST_F(GangOrdersTest, GroupQueryIsAnsweredOnTheSameConnection) {
  gang::AskGroups request;
  request.request_id = 6;
  request.job = request.incarnation = 1;
  request.epoch = 8;
  coordinator_->send(request);
  const auto reply = coordinator_->receive<wire::Reply>("the refusal");
  EXPECT_EQ(reply.request_id, 6U);
  EXPECT_EQ(static_cast<ErrorCode>(reply.error_code), ErrorCode::kNotFound);
}

TEST_F(GangOrdersTest, MalformedQueryEndsTheConnection) {
  const std::vector<std::byte> junk(3, std::byte{0xff});
  coordinator_->send(wire::FrameType::kAskGroups, junk);
  coordinator_->await_ends(1);
}

}  // namespace
}  // namespace ckpt::agent
