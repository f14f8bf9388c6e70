// SPDX-License-Identifier: Apache-2.0
// A rank that moves, as its node sees the move: the events of its session, and the reports about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/migration/gangs/gang_moves.h"
#include "tests/unit/agent/jobs/played_job.h"
#include "tests/unit/agent/migration/fake_gang.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/migration/plans.h"

namespace ckpt::agent {
namespace {

using gang::Party;
using gang::Role;
using testing::HasSubstr;

constexpr wire::MigrationId kOfRank = 21;

class GangMoveEventsTest : public WithContext<PlayedJob> {
 protected:
  void SetUp() override {
    config_.node = "node-a";
    PlayedJob::SetUp();
    context_.emplace(context(*jobs_));
    node_.emplace(io_, disk_, home_.path(), *context_, link_);
  }
  void TearDown() override {
    holder_.release();
    PlayedJob::TearDown();
    disk_.join();
  }
  void prepare(const wire::GangInfo& info, const Party& party) {
    wire::CommitMessage message(info, Party(), party, wire::Prepare());
    message.info = info;
    node_->moves.on_message(std::move(message));
  }
  // Begins the move of the job, as its source. The session waits for the job, so the test sends its events.
  void begin_at_source() {
    holder_.holds = true;
    prepare(gang_move_between("node-a", "node-b", home_.path()), Party(Role::kSource, 0));
    await_event(io_, "the session needs the job", [this] { return !holder_.asked.empty(); });
  }
  void send(migration::SourceEvent event, wire::MigrationId id = kOfRank) {
    static_cast<SessionPort&>(node_->moves).on_event({id, wire::Role::kSource}, std::move(event));
  }
  // Waits for a message to the coordinator with a body of type Body, and returns the body.
  template <class Body>
  Body await_told(const std::string& what) {
    std::optional<Body> found;
    await_event(io_, what, [&] {
      for (const wire::CommitMessage& message : link_.told) {
        const auto* body = std::get_if<Body>(&message.body);
        if (body != nullptr && message.to == Party()) found = *body;
      }
      return found.has_value();
    });
    return *found;
  }

  FakeGangPort link_;
  std::optional<MigrationContext> context_;
  std::optional<FakeGangNode> node_;
};

TEST_F(GangMoveEventsTest, EventOfTheSessionReachesItsParty) {
  begin_at_source();
  send(migration::SourceReady(wire::Bytes(3)));
  EXPECT_EQ(await_told<wire::Prepared>("the source is prepared").payload.size(), 3U);
}

TEST_F(GangMoveEventsTest, EventOfAnotherMigrationChangesNothing) {
  begin_at_source();
  send(migration::SourceReady(wire::Bytes(3)), kOfRank + 1);
  send(migration::SourceReady(wire::Bytes(4)));
  EXPECT_EQ(await_told<wire::Prepared>("the source is prepared").payload.size(), 4U);
}

TEST_F(GangMoveEventsTest, FailureOfTheSessionEndsTheMoveWithItsReason) {
  begin_at_source();
  send(migration::EngineFailed(wire::Reason(ErrorCode::kUnavailable, "the mover ended")));
  EXPECT_THAT(await_told<wire::Never>("the source leaves the move").reason.text,
              HasSubstr("the mover ended"));
}

TEST_F(GangMoveEventsTest, StandbyThatCannotStartIsReportedWithItsReason) {
  prepare(gang_move_between("node-b", "node-a", home_.path()), Party(Role::kTarget, 0));
  EXPECT_THAT(await_told<wire::Relinquished>("the target gives up").reason.text,
              HasSubstr("There is no such GPU"));
}

TEST_F(GangMoveEventsTest, OpenMoveHoldsItsJobAndIsReported) {
  begin_at_source();
  GangMoves& moves = node_->moves;
  EXPECT_TRUE(moves.is_open(1));
  EXPECT_FALSE(moves.is_open(2));
  EXPECT_TRUE(moves.sends(kOfRank));
  EXPECT_FALSE(moves.has_promised(kOfRank));
  EXPECT_EQ(moves.newest(), kOfRank);
  const auto open = moves.open_handovers();
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open.front().migration, 9U);
  EXPECT_EQ(open.front().job, 1U);
  EXPECT_TRUE(open.front().of_ranks);
  wire::DescribeHandover request;
  request.migration = 9;
  const auto facts = moves.describe(request);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->move, wire::encode(gang_move_between("node-a", "node-b", home_.path())));
  request.migration = 10;
  EXPECT_FALSE(moves.describe(request));
}

TEST_F(GangMoveEventsTest, LimitsReachAnOpenSourceOnly) {
  begin_at_source();
  wire::SetLimits limits;
  limits.migration = kOfRank;
  EXPECT_TRUE(node_->moves.set_limits(limits));
  send(migration::EngineFailed(wire::Reason(ErrorCode::kUnavailable, "the mover ended")));
  await_told<wire::Never>("the source leaves the move");
  EXPECT_EQ(node_->moves.set_limits(limits).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(node_->moves.sends(kOfRank));
  EXPECT_FALSE(node_->moves.is_open(1));
}

TEST_F(GangMoveEventsTest, PeerActsOnlyAsTheRankThatThePlanGivesIt) {
  begin_at_source();
  const auto info = gang_move_between("node-a", "node-b", home_.path());
  const wire::CommitMessage message(info, Party(Role::kTarget, 0), Party(Role::kSource, 0), wire::Query());
  EXPECT_TRUE(node_->moves.take_of_peer({"node-b", true}, message));
  EXPECT_FALSE(node_->moves.take_of_peer({"node-c", true}, message));
  wire::CommitMessage of_other = message;
  of_other.migration = 10;
  EXPECT_FALSE(node_->moves.take_of_peer({"node-b", true}, of_other));
}

// A node whose earlier agent has left a record of the move, and an instance.
class LeftMoveTest : public WithContext<NodeOfJobs> {
 protected:
  void SetUp() override { config_.node = "node-a"; }
  void TearDown() override {
    if (job_ && !job_->ended()) {
      EXPECT_TRUE(run_until_done(io_, job_->stop(Milliseconds(0))));
    }
    if (job_) run_until(io_, [this] { return job_->ended() && !job_->keeper(); });
    disk_.join();
  }
  void find_instance(const JobRecord& record, local::Phase phase) {
    keeper_.emplace(io_, leave_instance(record), phase);
    jobs_.emplace(*environment_);
    ASSERT_TRUE(run_until_done(io_, jobs_->rediscover()));
    job_ = jobs_->running_as(1, record.incarnation);
    ASSERT_TRUE(job_);
  }
  void restart_with(const gang::Record& record) {
    {
      auto journal = gang::GangJournal::open(home_.path() + "/gang-journal");
      ASSERT_TRUE(journal);
      ASSERT_TRUE(journal->append(record));
    }
    context_.emplace(context(*jobs_));
    node_.emplace(io_, disk_, home_.path(), *context_, link_);
    ASSERT_TRUE(run_until_done(io_, node_->moves.restore()));
  }
  template <class Body>
  void await_told(const std::string& what) {
    await_event(io_, what, [this] {
      return std::any_of(link_.told.begin(), link_.told.end(), [](const wire::CommitMessage& message) {
        return std::holds_alternative<Body>(message.body);
      });
    });
  }
  // Finds an instance of the source, and waits until the source has stated FENCED.
  void restart_fenced(wire::Incarnation started_as, wire::Incarnation runs_as) {
    JobRecord record = new_record();
    record.spec.incarnation = started_as;
    record.incarnation = runs_as;
    find_instance(record, local::Phase::kRunning);
    ASSERT_TRUE(job_);
    restart_with(gang::Record(gang_move_between("node-a", "node-b", home_.path()), Party(Role::kSource, 0),
                              gang::RecordKind::kFenced));
    await_told<wire::Fenced>("the source is fenced");
  }

  FakeGangPort link_;
  std::optional<PlayedKeeper> keeper_;
  std::optional<JobTable> jobs_;
  std::shared_ptr<Job> job_;
  std::optional<MigrationContext> context_;
  std::optional<FakeGangNode> node_;
};

TEST_F(LeftMoveTest, ReturnedSourceIsTerminatedBeforeFencedIsReported) {
  restart_fenced(1, 3);
  EXPECT_TRUE(job_->ended());
}

// The ranks were restored after the move, as the incarnation after that of the target.
TEST_F(LeftMoveTest, FencedSourceTerminatesNoInstanceFromAnImage) {
  restart_fenced(3, 3);
  EXPECT_FALSE(job_->ended());
}

TEST_F(LeftMoveTest, TargetIsTerminatedBeforeRelinquishedIsReported) {
  JobRecord record = new_record();
  record.role = wire::JobRole::kStandby;
  record.migration = kOfRank;
  record.spec.incarnation = record.incarnation = 2;
  find_instance(record, local::Phase::kStandbyReady);
  ASSERT_TRUE(job_);
  restart_with(gang::Record(gang_move_between("node-b", "node-a", home_.path()), Party(Role::kTarget, 0),
                            gang::RecordKind::kRelinquished));
  await_told<wire::Relinquished>("the target has given up");
  EXPECT_TRUE(job_->ended());
}

}  // namespace
}  // namespace ckpt::agent
