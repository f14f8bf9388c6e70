// SPDX-License-Identifier: Apache-2.0
// Tests of the mover that the agent keeps running, against movers that the test plays.
#include "agent/mover_client/mover_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Milliseconds kAmple{60000};
const mover::SessionKey kOne(5, 0);
const mover::SessionKey kOther(6, 0);

class MoverProcessTest : public AgentWithMovers {
 protected:
  using Ready = Running<Result<void>>;
  Ready ready(Milliseconds timeout = kAmple) { return {io_, "ready()", process_->ready(timeout)}; }
  // Records the events that a session receives.
  void subscribe(mover::SessionKey session, const std::string& name) {
    MoverProcess::Subscriber subscriber;
    subscriber.message = [this, name](const mover::Packet& packet) {
      heard_.push_back(name + " " + std::string(mover::name_of(packet.message)));
    };
    subscriber.died = [this, name](const Error& error) {
      heard_.push_back(name + " died");
      death_ = error.to_string();
    };
    process_->subscribe(session, std::move(subscriber));
  }
  void await_heard(std::size_t count) {
    await_event(io_, "the sessions hear " + std::to_string(count) + " things",
                [this, count] { return heard_.size() >= count; });
  }
  static mover::SessionEnded end_of(mover::SessionKey session) {
    mover::SessionEnded ended;
    ended.session = session;
    return ended;
  }
  std::vector<std::string> heard_;
  std::string death_;
};

TEST_F(MoverProcessTest, MoverServesAfterItsReadyMessage) {
  create();
  auto waits = ready();
  auto mover = started("the mover");
  EXPECT_FALSE(process_->serving());
  EXPECT_FALSE(waits.done());
  EXPECT_EQ(process_->pid(), mover->pid());
  mover->send(mover::MoverReady());
  EXPECT_TRUE(waits.result());
  EXPECT_TRUE(process_->serving());
}

TEST_F(MoverProcessTest, ConcurrentCallersStartOneMover) {
  create();
  process_->start();
  auto first = ready();
  auto second = ready();
  auto mover = started("the mover");
  mover->send(mover::MoverReady());
  EXPECT_TRUE(first.result());
  EXPECT_TRUE(second.result());
  EXPECT_EQ(process_->starts(), 1U);
}

TEST_F(MoverProcessTest, LateMoverCausesAnErrorThatNamesItsLogAndServesLater) {
  create();
  auto late = ready(Milliseconds(0));
  auto mover = started("the mover");
  ASSERT_FALSE(late.result());
  EXPECT_EQ(late.result().error().code(), ErrorCode::kTimedOut);
  EXPECT_THAT(late.result().error().to_string(), HasSubstr(settings_.log_path));
  mover->send(mover::MoverReady());
  EXPECT_TRUE(ready().result());
  EXPECT_EQ(process_->starts(), 1U);
}

TEST_F(MoverProcessTest, MoverWithoutAContextIsReportedWithItsReason) {
  create();
  auto waits = ready();
  auto mover = started("the mover");
  mover::MoverFailed failed;
  failed.failure = mover::Failure(Error(ErrorCode::kDevice, "the driver refuses a context"));
  mover->send(failed);
  ASSERT_FALSE(waits.result());
  EXPECT_EQ(waits.result().error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(waits.result().error().to_string(), HasSubstr("the driver refuses a context"));
  mover->await_agent_gone();
}

TEST_F(MoverProcessTest, ProgramThatCannotBeStartedIsReportedWithItsPath) {
  settings_.program = "/nonexistent/mover";
  create();
  auto waits = ready();
  ASSERT_FALSE(waits.result());
  EXPECT_THAT(waits.result().error().to_string(), HasSubstr("/nonexistent/mover"));
}

TEST_F(MoverProcessTest, EachSessionIsNotifiedOnceOfTheMoverExitAndItsReason) {
  auto mover = serve();
  subscribe(kOne, "one");
  subscribe(kOther, "other");
  mover->exit(3);
  await_heard(2);
  EXPECT_THAT(heard_, ElementsAre("one died", "other died"));
  EXPECT_THAT(death_, HasSubstr("exit status 3"));
  EXPECT_THAT(death_, HasSubstr(settings_.log_path));
  EXPECT_FALSE(process_->serving());
  auto again = ready();
  auto next = started("the next mover");
  next->send(mover::MoverReady());
  EXPECT_TRUE(again.result());
  next->exit(3);
  await_event(io_, "the next mover's end is seen", [this] { return !process_->serving(); });
  EXPECT_EQ(heard_.size(), 2U);  // sessions do not survive their mover
}

TEST_F(MoverProcessTest, MoverThatClosesItsSocketIsKilled) {
  auto mover = serve();
  subscribe(kOne, "one");
  mover->close_socket();
  await_heard(1);
  EXPECT_THAT(death_, HasSubstr("signal 9"));
}

TEST_F(MoverProcessTest, ExitedMoverIsRestarted) {
  settings_.first_backoff = Milliseconds(1);
  auto mover = serve();
  mover->exit(1);
  auto next = started("the next mover");
  EXPECT_NE(next->pid(), mover->pid());
  next->send(mover::MoverReady());
  await_event(io_, "the next mover serves", [this] { return process_->serving(); });
  EXPECT_EQ(process_->starts(), 2U);
}

TEST_F(MoverProcessTest, RestartDelayDoublesUpToItsLimitUntilAMoverServes) {
  settings_.first_backoff = Milliseconds(1);
  settings_.max_backoff = Milliseconds(3);
  create().start();
  std::vector<Milliseconds> pauses;
  for (int i = 0; i < 4; ++i) {
    auto mover = started("mover " + std::to_string(i + 1));
    pauses.push_back(process_->next_pause());
    mover->exit(1);
    mover->await_agent_gone();
  }
  EXPECT_THAT(pauses, ElementsAre(Milliseconds(1), Milliseconds(2), Milliseconds(3), Milliseconds(3)));
  auto mover = started("the last mover");
  mover->send(mover::MoverReady());
  await_event(io_, "the last mover serves", [this] { return process_->serving(); });
  EXPECT_EQ(process_->next_pause(), Milliseconds(1));
}

TEST_F(MoverProcessTest, MoveDoesNotWaitForTheRestartDelay) {
  auto mover = serve();
  mover->exit(1);
  await_event(io_, "the mover's end is seen", [this] { return !process_->serving(); });
  auto waits = ready();  // the pause before a restart is an hour
  auto next = started("the next mover");
  next->send(mover::MoverReady());
  EXPECT_TRUE(waits.result());
}

TEST_F(MoverProcessTest, MessageReachesOnlyItsOwnSession) {
  auto mover = serve();
  subscribe(kOne, "one");
  subscribe(kOther, "other");
  mover->send(end_of(mover::SessionKey(99, 0)));
  mover->send(end_of(kOne));
  mover->send(end_of(kOther));
  await_heard(2);
  EXPECT_THAT(heard_, ElementsAre("one SessionEnded", "other SessionEnded"));
}

TEST_F(MoverProcessTest, UnsubscribedSessionReceivesNoMessages) {
  auto mover = serve();
  subscribe(kOne, "one");
  subscribe(kOther, "other");
  process_->unsubscribe(kOne);
  mover->send(end_of(kOne));
  mover->exit(1);
  await_heard(1);
  EXPECT_THAT(heard_, ElementsAre("other died"));
}

TEST_F(MoverProcessTest, MoverThatSendsAMalformedPacketIsKilledAndTheReasonIsReported) {
  auto mover = serve();
  subscribe(kOne, "one");
  mover->send_bytes({std::byte{1}, std::byte{2}});
  await_heard(1);
  EXPECT_THAT(death_, HasSubstr("The mover was stopped"));
  EXPECT_THAT(death_, HasSubstr("A mover packet has an invalid length of 2 bytes"));
  mover->await_agent_gone();
}

TEST_F(MoverProcessTest, MessageToAMoverThatDoesNotServeIsAnError) {
  create();
  const auto before = process_->send(end_of(kOne));
  ASSERT_FALSE(before);
  EXPECT_EQ(before.error().code(), ErrorCode::kUnavailable);
}

TEST_F(MoverProcessTest, StopEndsTheMoverPermanentlyAndFailsPendingCallers) {
  create();
  auto waits = ready();
  auto mover = started("the mover");
  process_->stop();
  ASSERT_FALSE(waits.result());
  EXPECT_EQ(waits.result().error().code(), ErrorCode::kUnavailable);
  mover->await_agent_gone();
  process_->start();
  EXPECT_FALSE(ready().result());
  EXPECT_EQ(process_->starts(), 1U);
}

TEST_F(MoverProcessTest, DestroyingTheMoverProcessObjectClosesTheSocketOfTheMover) {
  auto mover = serve();
  process_.reset();
  mover->await_agent_gone();
}

}  // namespace
}  // namespace ckpt::agent
