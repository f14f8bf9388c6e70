// SPDX-License-Identifier: Apache-2.0
// The moves of a node with both commit protocols. The test plays the coordinator and other agents.
#include "agent/daemon/moves.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/migration/fake_gang.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/migration/plans.h"
#include "tests/unit/agent/support/awaited.h"

namespace ckpt::agent {
namespace {

using wire::CommitKind;
using wire::Role;

class MovesTest : public WithContext<NodeOfJobs> {
 protected:
  void SetUp() override {
    config_.node = "node-a";
    const auto fatal = [](const Error& error) { ADD_FAILURE() << error.to_string(); };
    PeerLinks::Settings peers;
    peers.node = config_.node;
    peers.listen = "unix:" + (home_ / "peers.sock");
    peers.port_file = home_ / "peer.port";
    auto moves = Moves::create(
        {context_, link_, std::move(peers),
         Migrations::Machines{io_, disk_, migration::Journal::open(home_ / "journal").value(), {}, fatal},
         GangDriver::Machines{
             io_, disk_, gang::GangJournal::open(home_ / "gang-journal").value(), {}, fatal}});
    ASSERT_TRUE(moves) << moves.error().to_string();
    moves_ = *std::move(moves);
  }
  void TearDown() override {
    holder_.release();
    run_ready(io_);
    disk_.join();
    run_ready(io_);
  }
  MoveProtocol& of(CommitKind kind) { return moves_->protocols().of(kind); }
  // Begins migration 5 of job 1 to node-b. The source waits for the job until the test releases it.
  void begin_switch() {
    holder_.holds = true;
    moves_->on_message({5, 1, 1, Role::kCoordinator, Role::kSource,
                        wire::Prepare({}, plan_between("node-a", "node-b", home_.path()))});
    await_event(io_, "the session needs the job", [this] { return !holder_.asked.empty(); });
  }
  static wire::CommitMessage from_target(wire::MigrationId id) {
    return {id, 1, 1, Role::kTarget, Role::kSource, wire::Query()};
  }

  JobTable jobs_{*environment_};
  MigrationContext context_ = context(jobs_);
  FakeGangPort link_;
  std::unique_ptr<Moves> moves_;
};

TEST_F(MovesTest, MessageOfASwitchReachesOnlyTheSwitch) {
  begin_switch();
  EXPECT_EQ(of(CommitKind::kHandover).newest(), 5U);
  EXPECT_EQ(of(CommitKind::kGang).newest(), 0U);
  EXPECT_TRUE(link_.told.empty());
}

TEST_F(MovesTest, MessageOfAGangReachesOnlyTheGangCommit) {
  moves_->on_message({9, 7, 1, wire::Party(), wire::Party(Role::kSource, 3), wire::Query()});
  await_event(io_, "the question about the move", [this] { return !link_.told.empty(); });
  EXPECT_TRUE(link_.told.front().asks_for_info);
  EXPECT_EQ(link_.told.front().migration, 9U);
  EXPECT_EQ(of(CommitKind::kHandover).newest(), 0U);
}

TEST_F(MovesTest, OpenSwitchHoldsItsJobAndIsReported) {
  begin_switch();
  EXPECT_TRUE(moves_->is_moving(1));
  EXPECT_FALSE(moves_->is_moving(2));
  EXPECT_TRUE(moves_->protocols().sends(5));
  const auto open = of(CommitKind::kHandover).open_handovers();
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open.front().side, wire::Side::kSource);
  EXPECT_FALSE(open.front().of_ranks);
  wire::DescribeHandover request;
  request.migration = 5;
  ASSERT_TRUE(moves_->protocols().describe(request));
  EXPECT_EQ(moves_->protocols().describe(request)->plan, plan_between("node-a", "node-b", home_.path()));
  request.side = wire::Side::kTarget;
  EXPECT_FALSE(moves_->protocols().describe(request)) << "this node is not its target";
  wire::SetLimits limits;
  limits.migration = 5;
  EXPECT_TRUE(moves_->protocols().set_limits(limits));
  limits.migration = 6;
  EXPECT_EQ(moves_->protocols().set_limits(limits).error().code(), ErrorCode::kNotFound);
}

TEST_F(MovesTest, CertifiedPeerActsOnlyAsTheOtherSideOfAKnownMigration) {
  begin_switch();
  MoveProtocol& switches = of(CommitKind::kHandover);
  EXPECT_TRUE(switches.take_of_peer({"node-b", true}, from_target(5)));
  EXPECT_FALSE(switches.take_of_peer({"node-c", true}, from_target(5)));
  EXPECT_FALSE(switches.take_of_peer({"node-b", true}, from_target(6)));
  wire::CommitMessage as_coordinator = from_target(5);
  as_coordinator.from.role = Role::kCoordinator;
  EXPECT_FALSE(switches.take_of_peer({"node-b", true}, as_coordinator));
  EXPECT_TRUE(switches.take_of_peer({"node-c", false}, from_target(5))) << "without TLS the token decides";
}

}  // namespace
}  // namespace ckpt::agent
