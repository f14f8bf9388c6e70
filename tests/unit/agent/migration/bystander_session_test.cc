// SPDX-License-Identifier: Apache-2.0
// A rank that stays while others of its gang move. The test plays the rank's keeper, and the operation that
// used the job before.
#include "agent/migration/gangs/bystander_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/unit/agent/jobs/live_process.h"
#include "tests/unit/agent/jobs/played_job.h"
#include "tests/unit/agent/migration/fake_ports.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kNewEpoch = 8;

class BystanderSessionTest : public WithContext<PlayedJob> {
 protected:
  void SetUp() override {
    PlayedJob::SetUp();
    context_.emplace(context(*jobs_));
    begin(1);
  }
  void TearDown() override {
    const std::weak_ptr<BystanderSession> left = session_;
    session_.reset();
    PlayedJob::TearDown();
    await_event(io_, "the session is gone", [&left] { return left.expired(); });
  }
  void begin(wire::Incarnation incarnation) {
    gang::StayingRank rank;
    rank.rank = 3;
    rank.job = 1;
    rank.incarnation = incarnation;
    session_ = std::make_shared<BystanderSession>(
        *context_, rank, kNewEpoch, [this](gang::BystanderEvent event) { seen_.push_back(std::move(event)); },
        [this](Nanos stood_since, Nanos went_on, Nanos /*groups*/) {
          stood_.push_back(stood_since);
          went_on_.push_back(went_on);
        });
  }
  void await_events(std::size_t count) {
    await_event(io_, "the session emits " + std::to_string(count) + " events",
                [this, count] { return seen_.size() >= count; });
  }
  template <class Event>
  [[nodiscard]] int count() const {
    return count_of<Event>(seen_);
  }
  static std::vector<gang::GroupTicket> tickets(std::size_t bytes = 4) {
    std::vector<gang::GroupTicket> out(1);
    out.front().group = "world";
    out.front().ticket.resize(bytes);
    return out;
  }
  // Pauses the rank at its barrier.
  void hold() {
    session_->pause_at(5);
    const auto order = keeper_->receive<local::Pause>("the order to pause");
    EXPECT_EQ(order.body.at_barrier, 5U);
    local::Paused paused;
    paused.barrier_entry_ns = paused.quiesced_ns = 700;
    paused.barrier = 5;
    keeper_->answer(order.request, paused);
    await_event(io_, "the rank is held", [this] { return count<gang::RankHeld>() == 1; });
  }
  void answer_running(std::uint64_t request) {
    local::Running running;
    running.incarnation = 1;
    running.resumed_ns = 900;
    keeper_->answer(request, running);
  }
  Order<local::Resume> receive_resume(std::uint64_t epoch) {
    auto order = keeper_->receive<local::Resume>("the order to go on");
    EXPECT_EQ(order.body.epoch, epoch);
    EXPECT_EQ(order.body.incarnation, 1U);
    return order;
  }

  std::optional<MigrationContext> context_;
  std::shared_ptr<BystanderSession> session_;
  std::vector<gang::BystanderEvent> seen_;
  std::vector<Nanos> stood_;
  std::vector<Nanos> went_on_;
};

TEST_F(BystanderSessionTest, RankIsReadyOnceNoOtherOperationUsesItsJob) {
  holder_.holds = true;
  session_->admit();
  settle();
  EXPECT_THAT(holder_.asked, ElementsAre(1U));
  EXPECT_TRUE(seen_.empty());
  holder_.release();
  await_events(1);
  EXPECT_EQ(count<gang::RankReady>(), 1);
  session_->admit();
  await_events(2);
  EXPECT_EQ(holder_.asked.size(), 1U) << "it is admitted already";
}

TEST_F(BystanderSessionTest, EndIsReportedOnceTheRankHasEnded) {
  session_->end();
  EXPECT_TRUE(seen_.empty());
  await_events(1);
  EXPECT_EQ(count<gang::RankEnded>(), 1);
  EXPECT_TRUE(job_->ended());
}

TEST_F(BystanderSessionTest, RankThatRunsAsAnotherIncarnationIsNotAdmitted) {
  begin(2);
  session_->admit();
  await_events(1);
  EXPECT_EQ(count<gang::CommunicatorsFailed>(), 1);
}

TEST_F(BystanderSessionTest, CommunicatorsAreReadyOnceTheRankHasCreatedThem) {
  session_->join(tickets(), Milliseconds(60000));
  const auto order = keeper_->receive<local::JoinGroups>("the order to make communicators");
  EXPECT_EQ(order.body.sequence, kNewEpoch);
  ASSERT_EQ(order.body.records.size(), 1U);
  EXPECT_EQ(order.body.records.front().name.str(), "world");
  EXPECT_EQ(order.body.records.front().bytes, 4U);
  EXPECT_TRUE(seen_.empty());
  keeper_->answer(order.request, local::GroupsJoined{kNewEpoch});
  await_events(1);
  EXPECT_EQ(count<gang::CommunicatorsReady>(), 1);
}

TEST_F(BystanderSessionTest, RankThatSharesNoGroupWithAMovedRankIsReadyWithoutAnOrder) {
  session_->join({}, Milliseconds(60000));
  await_events(1);
  EXPECT_EQ(count<gang::CommunicatorsReady>(), 1);
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(BystanderSessionTest, RefusalToCreateCommunicatorsNamesTheRank) {
  session_->join(tickets(), Milliseconds(60000));
  keeper_->refuse(keeper_->receive<local::JoinGroups>("the order to make communicators").request,
                  local::MessageType::kJoinGroups, Error(ErrorCode::kRefused, "no callback"));
  await_events(1);
  ASSERT_EQ(count<gang::CommunicatorsFailed>(), 1);
  EXPECT_THAT(std::get<gang::CommunicatorsFailed>(seen_.front()).reason.text, HasSubstr("Rank 3"));
}

TEST_F(BystanderSessionTest, CreationOfCommunicatorsTimesOutAfterTheLimitOfThePlan) {
  session_->join(tickets(), Milliseconds(1));
  keeper_->receive<local::JoinGroups>("the order to make communicators");
  await_events(1);
  ASSERT_EQ(count<gang::CommunicatorsFailed>(), 1);
  EXPECT_THAT(std::get<gang::CommunicatorsFailed>(seen_.front()).reason.text, HasSubstr("within 1 ms"));
}

TEST_F(BystanderSessionTest, TicketTooLargeForTheRanksMessageIsNotSent) {
  session_->join(tickets(local::kTicketBytes + 1), Milliseconds(60000));
  await_events(1);
  EXPECT_EQ(count<gang::CommunicatorsFailed>(), 1);
  EXPECT_FALSE(keeper_->is_asked());
  auto long_name = tickets();
  long_name.front().group = std::string(local::kNameBytes, 'g');
  EXPECT_EQ(to_order(long_name, kNewEpoch).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(to_order(tickets(local::kTicketBytes), kNewEpoch));
}

TEST_F(BystanderSessionTest, DiscardedCommunicatorsAreNamedByTheirEpoch) {
  session_->discard();
  EXPECT_EQ(keeper_->receive<local::DiscardGroups>("the order to discard").body.epoch, kNewEpoch);
}

TEST_F(BystanderSessionTest, RankThatContinuesWithNewCommunicatorsIsMeasured) {
  hold();
  session_->go_on(true);
  answer_running(receive_resume(kNewEpoch).request);
  await_event(io_, "the pause is measured", [this] { return !stood_.empty(); });
  EXPECT_THAT(stood_, ElementsAre(700));
  EXPECT_THAT(went_on_, ElementsAre(900));
}

TEST_F(BystanderSessionTest, RankThatContinuesWithOldCommunicatorsIsNotMeasured) {
  hold();
  session_->go_on(false);
  answer_running(receive_resume(0).request);
  settle();
  EXPECT_TRUE(stood_.empty());
}

TEST_F(BystanderSessionTest, FailedPauseIsReported) {
  session_->pause_at(5);
  keeper_->refuse(keeper_->receive<local::Pause>("the order to pause").request, local::MessageType::kPause,
                  Error(ErrorCode::kRefused, "it is past that barrier"));
  await_events(1);
  EXPECT_EQ(count<gang::CommunicatorsFailed>(), 1);
  EXPECT_EQ(count<gang::RankHeld>(), 0);
}

TEST_F(BystanderSessionTest, OrderToContinueWithdrawsThePauseWithoutAFailure) {
  session_->pause_at(5);
  const auto pause = keeper_->receive<local::Pause>("the order to pause");
  session_->go_on(false);
  answer_running(receive_resume(0).request);
  keeper_->answer(pause.request, local::Paused{});  // the answer arrives too late
  settle();
  EXPECT_TRUE(seen_.empty());
}

TEST_F(BystanderSessionTest, OrderToContinueIsRepeatedUntilTheRankContinues) {
  hold();
  session_->go_on(true);
  keeper_->refuse(receive_resume(kNewEpoch).request, local::MessageType::kResume,
                  Error(ErrorCode::kUnavailable, "the rank does not answer"));
  answer_running(receive_resume(kNewEpoch).request);
  await_event(io_, "the pause is measured", [this] { return !stood_.empty(); });
}

// Nobody else would continue the rank, because its move is still open.
TEST_F(BystanderSessionTest, OrderToContinueIsRepeatedOnceALostKeeperAnswersAgain) {
  const LiveProcess process(job_->folder());
  hold();
  session_->go_on(true);
  receive_resume(kNewEpoch);
  keeper_->go_away();
  await_event(io_, "the keeper is lost", [this] { return job_->unknown(); });
  const auto after_backoff = std::chrono::steady_clock::now() + Milliseconds(200);
  run_until(io_, [&] { return std::chrono::steady_clock::now() >= after_backoff; });
  std::filesystem::remove(job_->folder() + "/keeper.sock");
  keeper_.emplace(io_, job_->folder(), local::Phase::kPaused);
  answer_running(receive_resume(kNewEpoch).request);
  await_event(io_, "the pause is measured", [this] { return !stood_.empty(); });
}

TEST_F(BystanderSessionTest, NewestOrderToContinueApplies) {
  hold();
  session_->go_on(true);
  const auto first = receive_resume(kNewEpoch);
  session_->go_on(false);
  keeper_->refuse(first.request, local::MessageType::kResume, Error(ErrorCode::kUnavailable, "not now"));
  answer_running(receive_resume(0).request);  // this is the second order; the first order is not repeated
  settle();
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(BystanderSessionTest, EndOfTheProcessIsReported) {
  hold();
  keeper_->exit(0);
  await_event(io_, "the end is reported", [this] { return count<gang::InstanceDied>() == 1; });
}

TEST_F(BystanderSessionTest, ExitOfAContinuedRankIsNotReportedAsADeath) {
  hold();
  session_->go_on(true);
  answer_running(receive_resume(kNewEpoch).request);
  settle();
  keeper_->exit(0);
  await_event(io_, "the job ends", [this] { return job_->ended(); });
  EXPECT_EQ(count<gang::InstanceDied>(), 0);
}

TEST_F(BystanderSessionTest, CrashOfAContinuedRankIsReported) {
  hold();
  session_->go_on(true);
  answer_running(receive_resume(kNewEpoch).request);
  settle();
  keeper_->exit(3 << 8);
  await_event(io_, "the end is reported", [this] { return count<gang::InstanceDied>() == 1; });
}

TEST_F(BystanderSessionTest, LossOfTheKeeperDuringThePauseEndsTheRank) {
  session_->pause_at(5);
  keeper_->receive<local::Pause>("the order to pause");
  keeper_->go_away();
  await_event(io_, "the end is reported", [this] { return count<gang::InstanceDied>() == 1; });
  EXPECT_EQ(count<gang::RankHeld>(), 0);
}

TEST_F(BystanderSessionTest, EndedRankIsKilledAndDoesNotContinue) {
  hold();
  session_->go_on(true);
  const auto resume = receive_resume(kNewEpoch);
  session_->end();
  keeper_->refuse(resume.request, local::MessageType::kResume, Error(ErrorCode::kUnavailable, "not now"));
  await_event(io_, "the job ends", [this] { return job_->ended(); });
  EXPECT_FALSE(keeper_->is_asked());
}

}  // namespace
}  // namespace ckpt::agent
