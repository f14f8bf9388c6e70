// SPDX-License-Identifier: Apache-2.0
// Tests of one session on a mover that the test plays.
#include "agent/mover_client/mover_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const mover::SessionKey kKey(7, 1);

template <class M>
M of_session() {
  M message;
  message.session = kKey;
  return message;
}

std::vector<UniqueFd> one_descriptor() {
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(make_memory_file("region", 4096).value());
  return descriptors;
}

class MoverSessionTest : public AgentWithMovers {
 protected:
  using Call = Running<Result<void>>;
  void SetUp() override { mover_ = serve(); }
  MoverSession& open(Milliseconds timeout = Milliseconds(60000)) {
    auto request = of_session<mover::OpenSession>();
    request.side = wire::Side::kSource;
    MoverSession::Handlers handlers;
    handlers.event = [this](mover::Packet packet) { events_.push_back(std::move(packet)); };
    handlers.failed = [this](const Error& error) { failures_.push_back(error.code()); };
    session_ =
        MoverSession::open(io_.get_executor(), process_, request, timeout, std::move(handlers)).value();
    EXPECT_EQ(mover_->receive<mover::OpenSession>("the session is opened").session, kKey);
    return *session_;
  }
  Call attach() {
    std::vector<mover::RegionInfo> regions(1, mover::RegionInfo(1, 1, 4096));
    return {io_, "attach_regions()", session_->attach_regions(std::move(regions), one_descriptor())};
  }
  Call drop(std::vector<std::uint64_t> regions) {
    return {io_, "drop_regions()", session_->drop_regions(std::move(regions))};
  }
  Running<Result<std::vector<std::string>>> listen() { return {io_, "listen()", session_->listen()}; }
  void report_attached(std::uint64_t batch) {
    auto attached = of_session<mover::Attached>();
    attached.batch = batch;
    mover_->send(attached);
  }
  void report_dropped(std::vector<std::uint64_t> regions) {
    auto dropped = of_session<mover::Dropped>();
    dropped.regions = std::move(regions);
    mover_->send(dropped);
  }
  void report_failed() {
    auto failed = of_session<mover::SessionFailed>();
    failed.failure = mover::Failure(Error(ErrorCode::kRefused, "the tensors do not fit"));
    mover_->send(failed);
  }
  // Returns once everything that the mover has already sent was received.
  void await_all_heard() {
    const std::size_t before = events_.size();
    mover_->send(of_session<mover::FirstRoundDone>());
    await_event(io_, "the session hears a message", [&] { return events_.size() > before; });
  }

  std::unique_ptr<FakeMover> mover_;
  std::shared_ptr<MoverSession> session_;
  std::vector<mover::Packet> events_;
  std::vector<ErrorCode> failures_;
};

TEST_F(MoverSessionTest, RegionIsAttachedAfterTheMoverAcknowledgesItsBatch) {
  open();
  auto first = attach();
  std::vector<UniqueFd> descriptors;
  EXPECT_EQ(mover_->receive<mover::AttachRegions>("the first batch", &descriptors).batch, 1U);
  EXPECT_EQ(descriptors.size(), 1U);
  report_attached(1);
  EXPECT_TRUE(first.result());
  auto second = attach();
  EXPECT_EQ(mover_->receive<mover::AttachRegions>("the second batch").batch, 2U);
  report_attached(1);  // a repeated answer that does not belong to this batch
  await_all_heard();
  EXPECT_FALSE(second.done());
  report_attached(2);
  EXPECT_TRUE(second.result());
}

TEST_F(MoverSessionTest, MoverExitFailsPendingCallsAndIsReportedOnce) {
  open();
  auto attaches = attach();
  mover_->exit(4);
  ASSERT_FALSE(attaches.result());
  EXPECT_THAT(attaches.result().error().to_string(), HasSubstr("exit status 4"));
  EXPECT_THAT(failures_, ElementsAre(ErrorCode::kUnavailable));
  EXPECT_FALSE(attach().result());
  EXPECT_FALSE(listen().result());
  EXPECT_TRUE(drop({1}).result());  // a mover that has ended holds no regions
  RunningVoid(io_, "end()", session_->end()).finish();
  EXPECT_EQ(failures_.size(), 1U);
}

TEST_F(MoverSessionTest, FailureEndsPendingCallsAndIsReportedOnce) {
  open();
  auto attaches = attach();
  report_failed();
  report_failed();
  await_all_heard();
  ASSERT_FALSE(attaches.result());
  EXPECT_EQ(attaches.result().error().code(), ErrorCode::kRefused);
  EXPECT_THAT(failures_, ElementsAre(ErrorCode::kRefused));
  EXPECT_EQ(attach().result().error().code(), ErrorCode::kRefused);
}

TEST_F(MoverSessionTest, FailedSessionStillWaitsUntilTheMoverReleasesItsRegions) {
  open();
  auto drops = drop({1});
  report_failed();
  await_all_heard();
  EXPECT_FALSE(drops.done());
  report_dropped({1});
  EXPECT_TRUE(drops.result());
  RunningVoid ends(io_, "end()", session_->end("given up"));
  mover_->receive<mover::DropRegions>("the regions to drop");
  EXPECT_EQ(mover_->receive<mover::EndSession>("the end of a failed session").reason, "given up");
  EXPECT_FALSE(ends.done());
  mover_->send(of_session<mover::SessionEnded>());
  ends.finish();
}

TEST_F(MoverSessionTest, DropRequestCompletesOnceAllItsRegionsAreDropped) {
  open();
  auto drops = drop({1, 2});
  report_dropped({2});
  await_all_heard();
  EXPECT_FALSE(drops.done());
  report_dropped({1});
  EXPECT_TRUE(drops.result());
}

TEST_F(MoverSessionTest, SilentMoverCausesATimeoutThatNamesTheMissingStep) {
  open(Milliseconds(0));
  const auto text_of = [](const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimedOut);
    return error.to_string();
  };
  EXPECT_THAT(text_of(attach().result().error()), HasSubstr("import the job's memory"));
  EXPECT_THAT(text_of(drop({1}).result().error()), HasSubstr("release freed memory"));
  EXPECT_THAT(text_of(listen().result().error()), HasSubstr("did not listen"));
  RunningVoid(io_, "end()", session_->end()).finish();
}

TEST_F(MoverSessionTest, TargetReturnsTheListenAddressesOfTheMover) {
  open();
  auto listens = listen();
  mover_->receive<mover::StartTarget>("the order to listen");
  auto listening = of_session<mover::Listening>();
  listening.addresses = {"a", "b"};
  mover_->send(listening);
  ASSERT_TRUE(listens.result());
  EXPECT_THAT(*listens.result(), ElementsAre("a", "b"));
}

TEST_F(MoverSessionTest, EndOfTheSessionCancelsPendingCallsAndIsOrderedOnce) {
  open();
  auto listens = listen();
  mover_->receive<mover::StartTarget>("the order to listen");
  RunningVoid ends(io_, "end()", session_->end());
  mover_->receive<mover::EndSession>("the order to end");
  mover_->send(of_session<mover::SessionEnded>());
  ends.finish();
  ASSERT_FALSE(listens.result());
  EXPECT_EQ(listens.result().error().code(), ErrorCode::kAborted);
  RunningVoid(io_, "end()", session_->end()).finish();
  ASSERT_TRUE(process_->send(mover::JobLeft()));
  mover_->receive<mover::JobLeft>("the message behind a second end(), which sends none");
}

TEST_F(MoverSessionTest, TensorsBeyondTheMessageLimitAreSentInSeveralMessages) {
  open();
  ASSERT_TRUE(session_->attach_tensors(std::vector<wire::TensorInfo>(mover::kMaxTensors + 1)));
  EXPECT_EQ(mover_->receive<mover::AttachTensors>("the first tensors").tensors.size(), mover::kMaxTensors);
  EXPECT_EQ(mover_->receive<mover::AttachTensors>("the last tensor").tensors.size(), 1U);
}

TEST_F(MoverSessionTest, OversizedMessageIsRefusedAndTheSessionContinues) {
  open();
  const auto sent = session_->drop_tensors({std::string(mover::kMaxPacketBytes, 'x')});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(session_->drop_tensors({"weight"}));
  EXPECT_THAT(mover_->receive<mover::DropTensors>("the next message").names, ElementsAre("weight"));
}

TEST_F(MoverSessionTest, OversizedPacketEndsTheMoverAndFailsTheSession) {
  open();
  auto attaches = attach();
  mover_->send_bytes(std::vector<std::byte>(mover::kMaxPacketBytes + 1));
  ASSERT_FALSE(attaches.result());
  EXPECT_THAT(attaches.result().error().to_string(), HasSubstr("exceeds the limit"));
}

TEST_F(MoverSessionTest, MessageWithoutItsDescriptorsEndsTheMoverAndFailsTheSession) {
  open();
  auto made = of_session<mover::MadeRegions>();
  made.regions.emplace_back(1, 1, 4096);
  mover_->send(made, one_descriptor());
  await_event(io_, "the regions come", [this] { return events_.size() == 1; });
  EXPECT_EQ(events_.front().fds.size(), 1U);
  mover_->send(made);
  await_event(io_, "the session fails", [this] { return !failures_.empty(); });
  EXPECT_THAT(session_->failure()->to_string(), HasSubstr("wrong number of descriptors"));
  EXPECT_EQ(events_.size(), 1U);
}

TEST_F(MoverSessionTest, SessionOnAMoverThatDoesNotServeIsRefused) {
  mover_->exit(1);
  await_event(io_, "the mover's end is seen", [this] { return !process_->serving(); });
  const auto opened =
      MoverSession::open(io_.get_executor(), process_, of_session<mover::OpenSession>(), Milliseconds(1), {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace ckpt::agent
