// SPDX-License-Identifier: Apache-2.0
// Lanes that the coordinator has two nodes try before a move. The test plays the coordinator and the mover.
#include "agent/coordinator_link/network_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "tests/unit/agent/coordinator_link/linked_agent.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/mover_client/fake_mover.h"

namespace ckpt::agent {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kGpu = 2;

class NetworkChecksTest : public WithContext<LinkedAgent> {
 protected:
  void SetUp() override {
    movers_.create();
    gpus_.movers[kGpu] = movers_.process;
    checks_.emplace(*link_, context_);
    connect();
  }
  template <class M>
  static M request(std::uint64_t id, std::uint32_t gpu = kGpu) {
    M asked;
    asked.request_id = id;
    asked.gpu = gpu;
    asked.network = "fast";
    asked.path = 1;
    asked.session_token.resize(wire::kSessionTokenBytes);
    return asked;
  }
  wire::ReachNode reach(std::uint64_t id) {
    auto asked = request<wire::ReachNode>(id);
    asked.address = "10.0.0.2:7001";
    return asked;
  }
  mover::OpenSession receive_session(wire::Side side) {
    auto opened = mover_->receive<mover::OpenSession>("the session of a check is opened");
    EXPECT_EQ(opened.purpose, mover::Purpose::kCheck);
    EXPECT_EQ(opened.side, side);
    EXPECT_EQ(opened.network, "fast");
    EXPECT_EQ(opened.first_path, 1U);
    return opened;
  }
  void end_session(mover::SessionKey key) {
    EXPECT_EQ(mover_->receive<mover::EndSession>("the session of a check is ended").session, key);
    mover::SessionEnded ended;
    ended.session = key;
    mover_->send(ended);
  }
  template <class M>
  static M in_session(mover::SessionKey key) {
    M message;
    message.session = key;
    return message;
  }
  wire::Reply receive_refusal(std::uint64_t id) {
    auto reply = coordinator_->receive<wire::Reply>("the refusal");
    EXPECT_EQ(reply.request_id, id);
    EXPECT_FALSE(reply.ok);
    return reply;
  }

  FakeMovers movers_{io_, folder_.path()};
  std::unique_ptr<FakeMover> mover_;
  std::shared_ptr<FileWatch> files_ = FileWatch::create(io_.get_executor()).value();
  asio::thread_pool records_{1};
  FakeOwner owner_;
  JobEnvironment environment_{config_, io_.get_executor(), *files_, "keeper", owner_, records_};
  JobTable jobs_{environment_};
  MigrationContext context_ = context(jobs_);
  std::optional<NetworkChecks> checks_;
};

TEST_F(NetworkChecksTest, TargetReportsItsAddressAndListensUntilThePeerConnects) {
  mover_ = movers_.serve();
  coordinator_->send(request<wire::ListenForCheck>(5));
  const auto key = receive_session(wire::Side::kTarget).session;
  mover_->receive<mover::StartTarget>("the order to listen");
  auto listening = in_session<mover::Listening>(key);
  listening.addresses = {"10.0.0.1:7001"};
  mover_->send(listening);
  const auto answer = coordinator_->receive<wire::ListensForCheck>("the address");
  EXPECT_EQ(answer.request_id, 5U);
  EXPECT_EQ(answer.address, "10.0.0.1:7001");
  mover_->send(in_session<mover::PeerReached>(key));
  end_session(key);
}

TEST_F(NetworkChecksTest, MoverThatListensOnSeveralAddressesIsRefusedAndEnded) {
  mover_ = movers_.serve();
  coordinator_->send(request<wire::ListenForCheck>(5));
  const auto key = receive_session(wire::Side::kTarget).session;
  mover_->receive<mover::StartTarget>("the order to listen");
  auto listening = in_session<mover::Listening>(key);
  listening.addresses = {"10.0.0.1:7001", "10.0.0.1:7002"};
  mover_->send(listening);
  EXPECT_THAT(receive_refusal(5).message, HasSubstr("2 addresses"));
  end_session(key);
}

TEST_F(NetworkChecksTest, SourceReportsHowLongItsMoverTookToReachTheTarget) {
  mover_ = movers_.serve();
  coordinator_->send(reach(6));
  const auto key = receive_session(wire::Side::kSource).session;
  EXPECT_EQ(mover_->receive<mover::ReachPeer>("the order to reach the target").address, "10.0.0.2:7001");
  auto reached = in_session<mover::PeerReached>(key);
  reached.connect_ns = 1234;
  mover_->send(reached);
  const auto answer = coordinator_->receive<wire::NodeReached>("the answer");
  EXPECT_EQ(answer.request_id, 6U);
  EXPECT_EQ(answer.connect_ns, 1234);
  end_session(key);
}

TEST_F(NetworkChecksTest, FailedLaneIsReportedAsTheResult) {
  mover_ = movers_.serve();
  coordinator_->send(reach(6));
  const auto key = receive_session(wire::Side::kSource).session;
  mover_->receive<mover::ReachPeer>("the order to reach the target");
  auto failed = in_session<mover::SessionFailed>(key);
  failed.failure = mover::Failure(Error(ErrorCode::kUnavailable, "connection refused"));
  mover_->send(failed);
  EXPECT_THAT(receive_refusal(6).message, HasSubstr("connection refused"));
  end_session(key);
}

TEST_F(NetworkChecksTest, MoverThatDiesDuringACheckIsReportedAsTheResult) {
  mover_ = movers_.serve();
  coordinator_->send(reach(6));
  receive_session(wire::Side::kSource);
  mover_->receive<mover::ReachPeer>("the order to reach the target");
  mover_->exit(7);
  EXPECT_THAT(receive_refusal(6).message, HasSubstr("exit status 7"));
}

TEST_F(NetworkChecksTest, MoverThatDiesBeforeItListensIsReportedAsTheResult) {
  mover_ = movers_.serve();
  coordinator_->send(request<wire::ListenForCheck>(5));
  receive_session(wire::Side::kTarget);
  mover_->receive<mover::StartTarget>("the order to listen");
  mover_->exit(7);
  EXPECT_THAT(receive_refusal(5).message, HasSubstr("exit status 7"));
}

TEST_F(NetworkChecksTest, UnknownGpuIsRefused) {
  coordinator_->send(request<wire::ListenForCheck>(5, kGpu + 1));
  EXPECT_EQ(static_cast<ErrorCode>(receive_refusal(5).error_code), ErrorCode::kNotFound);
}

TEST_F(NetworkChecksTest, ConcurrentChecksHaveSeparateSessions) {
  mover_ = movers_.serve();
  coordinator_->send(reach(6));
  const auto first = receive_session(wire::Side::kSource).session;
  mover_->receive<mover::ReachPeer>("the first order");
  coordinator_->send(reach(6));  // repeated, as by a coordinator that received no answer
  const auto second = receive_session(wire::Side::kSource).session;
  mover_->receive<mover::ReachPeer>("the second order");
  EXPECT_NE(first, second);
  auto reached = in_session<mover::PeerReached>(second);
  reached.connect_ns = 2;
  mover_->send(reached);
  EXPECT_EQ(coordinator_->receive<wire::NodeReached>("the second answer").connect_ns, 2);
  end_session(second);
  reached.session = first;
  reached.connect_ns = 1;
  mover_->send(reached);
  EXPECT_EQ(coordinator_->receive<wire::NodeReached>("the first answer").connect_ns, 1);
  end_session(first);
}

TEST_F(NetworkChecksTest, MalformedRequestEndsTheConnection) {
  const std::vector<std::byte> junk(3, std::byte{0xff});
  coordinator_->send(wire::FrameType::kReachNode, junk);
  coordinator_->await_ends(1);
}

}  // namespace
}  // namespace ckpt::agent
