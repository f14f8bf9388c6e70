// SPDX-License-Identifier: Apache-2.0
// Tests of the agent's connection against a coordinator that the test plays on a Unix socket.
#include "agent/coordinator_link/coordinator_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "libckpt/protocol/wire/health_messages.h"
#include "tests/unit/agent/coordinator_link/linked_agent.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class M>
M order(std::uint64_t request) {
  M message;
  message.request_id = request;
  return message;
}

wire::StartJob start_of(std::uint64_t request, wire::JobId job) {
  auto start = order<wire::StartJob>(request);
  start.spec.job = job;
  return start;
}

wire::JobInstance instance_of(wire::JobId job) {
  wire::JobInstance instance;
  instance.job = job;
  return instance;
}

class CoordinatorLinkTest : public LinkedAgent {};

TEST_F(CoordinatorLinkTest, AgentSendsItsTokenAndThenTheStateOfItsNode) {
  commands_.now.rack = "rack-7";
  commands_.newest_job = 41;
  const wire::AgentHello hello = connect();
  EXPECT_EQ(coordinator_->hellos().front().name, "node-a");
  EXPECT_EQ(coordinator_->hellos().front().token, "secret");
  EXPECT_EQ(coordinator_->hellos().front().version, wire::kControlVersion);
  EXPECT_EQ(hello.inventory.node, "node-a");
  EXPECT_EQ(hello.inventory.rack, "rack-7");
  EXPECT_EQ(hello.newest_job, 41U);
  EXPECT_EQ(hello.software_version, GPUMIGRATE_VERSION);
  EXPECT_TRUE(link_->connected());
}

TEST_F(CoordinatorLinkTest, ComponentsRepeatTheirReportsAfterTheHelloOfEachConnection) {
  link_->at_each_connection([this] { link_->send_change(instance_of(7)); });
  connect();
  EXPECT_EQ(coordinator_->receive<wire::JobChange>("the repeated report").instance.job, 7U);
  coordinator_->hang_up();
  take_hello(2);
  EXPECT_EQ(coordinator_->receive<wire::JobChange>("the report, repeated again").instance.job, 7U);
}

TEST_F(CoordinatorLinkTest, AgentConnectsAsSoonAsACoordinatorListens) {
  link_->start();
  io_.poll();
  EXPECT_FALSE(link_->connected());
  listen();
  take_hello(1);
}

TEST_F(CoordinatorLinkTest, AgentReconnectsEachTimeTheCoordinatorDisconnects) {
  listen();
  coordinator_->hang_up_at_once(true);
  link_->start();
  coordinator_->await_dials(3);
  EXPECT_FALSE(link_->connected());
  coordinator_->hang_up_at_once(false);
  take_hello(1);
}

TEST_F(CoordinatorLinkTest, RefusedAgentRereadsItsTokenFileBeforeReconnecting) {
  write("token", "stale\n");
  listen();
  link_->start();
  coordinator_->await_dials(2);
  EXPECT_EQ(coordinator_->hellos().front().token, "stale");
  EXPECT_FALSE(link_->connected());
  EXPECT_EQ(coordinator_->greeted(), 0);
  write("token", "secret\n");
  take_hello(1);
  EXPECT_EQ(coordinator_->hellos().back().token, "secret");
}

TEST_F(CoordinatorLinkTest, AgentFindsAMovedCoordinatorByTheApiFile) {
  const auto announce = [this](const std::string& where, const std::string& token) {
    write(where + ".token", token);
    write("api.json", R"({"agent_address":")" + address_of(where) + R"(","agent_token_file":")" +
                          (folder_ / (where + ".token")) + R"("})");
  };
  announce("first", "secret");
  config_.coordinator.clear();
  config_.coordinator_file = folder_ / "api.json";
  FakeCoordinator first(io_, address_of("first"), "secret");
  link_->start();
  first.await_greetings(1);
  coordinator_.emplace(io_, address_of("second"), "another");
  announce("second", "another");
  first.go_away();
  take_hello(1);
  EXPECT_EQ(coordinator_->hellos().front().token, "another");
}

TEST_F(CoordinatorLinkTest, DisconnectedAgentSendsItsReportsOnlyInTheNextHello) {
  connect();
  coordinator_->go_away();
  await_event(io_, "the agent finds its coordinator gone", [this] { return !link_->connected(); });
  wire::JobChange change;
  change.instance = instance_of(8);
  EXPECT_FALSE(link_->send(change));
  link_->send_inventory();
  commands_.now.rack = "rack-8";
  listen();
  EXPECT_EQ(take_hello(1).inventory.rack, "rack-8");
  link_->send_change(instance_of(9));
  EXPECT_EQ(coordinator_->receive<wire::JobChange>("a report of the new connection").instance.job, 9U);
}

TEST_F(CoordinatorLinkTest, EachOrderIsExecutedAndAnsweredOnce) {
  connect();
  coordinator_->send(start_of(11, 1));
  auto stop = order<wire::StopJob>(12);
  stop.job = 2;
  coordinator_->send(stop);
  auto forget = order<wire::ForgetJob>(13);
  forget.job = 3;
  coordinator_->send(forget);
  auto limits = order<wire::SetLimits>(14);
  limits.migration = 4;
  coordinator_->send(limits);
  std::multiset<std::uint64_t> answered;
  while (answered.size() < 4) {
    const auto reply = coordinator_->receive<wire::Reply>("the answers to four orders");
    EXPECT_TRUE(reply.ok);
    answered.insert(reply.request_id);
  }
  EXPECT_THAT(answered, ElementsAre(11, 12, 13, 14));
  expect_answer_to_fence(15);  // a second answer would arrive before this answer
  EXPECT_THAT(commands_.started, ElementsAre(1));
  EXPECT_THAT(commands_.stopped, ElementsAre(2));
  EXPECT_THAT(commands_.forgotten, ElementsAre(3));
  EXPECT_THAT(commands_.limited, ElementsAre(4, 0));
}

TEST_F(CoordinatorLinkTest, OrderIsExecutedAndAnsweredWhileAnotherOrderIsInProgress) {
  connect();
  commands_.holds_starts = true;
  coordinator_->send(start_of(1, 5));
  coordinator_->send(order<wire::StopJob>(2));
  EXPECT_EQ(coordinator_->receive<wire::Reply>("the answer to the second order").request_id, 2U);
  EXPECT_EQ(commands_.started.size(), 1U);
  commands_.go_on_with_starts();
  EXPECT_EQ(coordinator_->receive<wire::Reply>("the answer to the first order").request_id, 1U);
}

TEST_F(CoordinatorLinkTest, OrderRepeatedAfterADisconnectionIsAnsweredOnTheNewConnection) {
  connect();
  commands_.holds_starts = true;
  coordinator_->send(start_of(21, 5));
  await_event(io_, "the agent begins the order", [this] { return commands_.started.size() == 1; });
  coordinator_->hang_up();
  take_hello(2);
  coordinator_->send(start_of(22, 5));
  await_event(io_, "the agent begins the repeated order", [this] { return commands_.started.size() == 2; });
  commands_.go_on_with_starts();
  // A coordinator skips the answer to a request that it does not wait for.
  auto reply = coordinator_->receive<wire::Reply>("the answer to the repeated order");
  if (reply.request_id == 21) reply = coordinator_->receive<wire::Reply>("the answer to the repeated order");
  EXPECT_EQ(reply.request_id, 22U);
  expect_answer_to_fence(23);
}

TEST_F(CoordinatorLinkTest, FailedOrderIsAnsweredWithItsErrorCodeAndText) {
  connect();
  commands_.outcome = Error(ErrorCode::kNotFound, "there is no such job");
  coordinator_->send(order<wire::StopJob>(1));
  const auto reply = coordinator_->receive<wire::Reply>("the refusal");
  EXPECT_FALSE(reply.ok);
  EXPECT_EQ(reply.to_error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(reply.message, HasSubstr("there is no such job"));
}

TEST_F(CoordinatorLinkTest, QueryIsAnsweredWithItsFactsOrWithAnError) {
  connect();
  commands_.log.bytes = "a line\n";
  commands_.facts.cwd = "/home";
  coordinator_->send(order<wire::ReadLog>(1));
  const auto data = coordinator_->receive<wire::LogData>("the log");
  EXPECT_EQ(data.request_id, 1U);
  EXPECT_EQ(data.bytes, "a line\n");
  coordinator_->send(order<wire::InspectProcess>(2));
  const auto facts = coordinator_->receive<wire::ProcessFacts>("the process's facts");
  EXPECT_EQ(facts.request_id, 2U);
  EXPECT_EQ(facts.cwd, "/home");
  commands_.outcome = Error(ErrorCode::kRefused, "not here");
  coordinator_->send(order<wire::ReadLog>(3));
  const auto no_log = coordinator_->receive<wire::Reply>("the reason why there is no log");
  EXPECT_EQ(no_log.request_id, 3U);
  EXPECT_EQ(no_log.to_error().code(), ErrorCode::kRefused);
  coordinator_->send(order<wire::InspectProcess>(4));
  EXPECT_EQ(coordinator_->receive<wire::Reply>("the reason why there are no facts").request_id, 4U);
}

TEST_F(CoordinatorLinkTest, AnswerTooLongForItsFrameBecomesAnError) {
  connect();
  commands_.log.bytes.assign(wire::max_body_bytes(wire::FrameType::kLogData), 'x');
  commands_.facts.cwd.assign(wire::max_body_bytes(wire::FrameType::kProcessFacts), 'x');
  coordinator_->send(order<wire::ReadLog>(1));
  const auto no_log = coordinator_->receive<wire::Reply>("the answer in place of a log that is too long");
  EXPECT_EQ(no_log.request_id, 1U);
  EXPECT_EQ(no_log.to_error().code(), ErrorCode::kRefused);
  coordinator_->send(order<wire::InspectProcess>(2));
  EXPECT_EQ(coordinator_->receive<wire::Reply>("the answer in place of facts that are too long").request_id,
            2U);
  EXPECT_EQ(coordinator_->greeted(), 1);
}

TEST_F(CoordinatorLinkTest, LongErrorTextIsTruncatedInTheReply) {
  connect();
  std::string text;
  while (text.size() < 2 * wire::max_body_bytes(wire::FrameType::kReply)) text += "\u00e9";
  commands_.outcome = Error(ErrorCode::kRefused, text);
  coordinator_->send(order<wire::StopJob>(1));
  const auto reply = coordinator_->receive<wire::Reply>("the refusal with a long text");
  EXPECT_EQ(reply.request_id, 1U);
  EXPECT_GT(reply.message.size(), 1000U);
  EXPECT_EQ(reply.message.size() % 2, 0U);  // no two-byte character is split
  EXPECT_EQ(reply.message, text.substr(0, reply.message.size()));
}

TEST_F(CoordinatorLinkTest, SettingsAndMigrationMessagesReachTheirHandlers) {
  connect();
  wire::Welcome welcome;
  welcome.peer_token = "abc";
  coordinator_->send(welcome);
  const wire::CommitMessage start(6, 3, 1, wire::Role::kCoordinator, wire::Role::kSource, wire::Start());
  coordinator_->send(wire::FrameType::kCommit, wire::encode_commit(start));
  expect_answer_to_fence(1);
  EXPECT_EQ(commands_.peer_token, "abc");
  EXPECT_THAT(commands_.handovers, ElementsAre(start));
}

TEST_F(CoordinatorLinkTest, FrameReachesItsHandlerAndAHandlerErrorEndsTheConnection) {
  std::vector<std::size_t> sizes;
  const auto take = [&sizes](std::span<const std::byte> body) -> Result<void> {
    sizes.push_back(body.size());
    if (body.size() > 1) return Error(ErrorCode::kProtocol, "too long");
    return ok();
  };
  link_->subscribe(wire::FrameType::kHealthSettings, take);
  connect();
  const std::array<std::byte, 2> body{};
  coordinator_->send(wire::FrameType::kHealthSettings, std::span(body).first(1));
  expect_answer_to_fence(1);
  EXPECT_THAT(sizes, ElementsAre(1));
  coordinator_->send(wire::FrameType::kHealthSettings, body);
  take_hello(2);
  EXPECT_THAT(sizes, ElementsAre(1, 2));
}

TEST_F(CoordinatorLinkTest, DestroyedLinkDisconnectsAndDoesNotReconnect) {
  connect();
  link_.reset();
  coordinator_->await_ends(1);
  coordinator_->go_away();
  await_rest(io_, "the link dials");
}

// A frame whose bytes the agent must reject.
struct BadFrame {
  const char* name;
  std::vector<std::byte> (*make)();
};

std::vector<std::byte> good_frame() {
  return wire::to_frame(start_of(1, 5), 9).value();
}

constexpr std::size_t kTypeAt = 6;  // the offset of the type in a frame's header (codec.h)
constexpr std::size_t kLengthAt = 8;

const BadFrame kBadFrames[] = {
    {"WithAnotherMagic",
     [] {
       auto bytes = good_frame();
       bytes[0] ^= std::byte{1};
       return bytes;
     }},
    {"OfAnUnknownType",
     [] {
       auto bytes = good_frame();
       const std::uint16_t unknown = 999;
       std::memcpy(bytes.data() + kTypeAt, &unknown, sizeof unknown);
       return bytes;
     }},
    {"LongerThanItsTypeMayBe",
     [] {
       auto bytes = good_frame();
       const auto more = static_cast<std::uint32_t>(wire::max_body_bytes(wire::FrameType::kStartJob) + 1);
       std::memcpy(bytes.data() + kLengthAt, &more, sizeof more);
       return bytes;
     }},
    {"WithADamagedBody",
     [] {
       auto bytes = good_frame();
       bytes.back() ^= std::byte{1};
       return bytes;
     }},
    {"WhoseBodyIsCut",
     [] {
       const auto body = wire::encode(start_of(1, 5));
       return wire::make_frame(wire::FrameType::kStartJob, 9, std::span(body).first(body.size() - 1)).value();
     }},
    {"ThatOnlyAgentsSend", [] { return wire::to_frame(wire::Inventory(), 9).value(); }},
    {"ThatIsNoSwitchMessage",
     [] {
       const std::array<std::byte, 3> body{};
       return wire::make_frame(wire::FrameType::kCommit, 9, body).value();
     }},
};

class MalformedFrame : public LinkedAgent, public ::testing::WithParamInterface<BadFrame> {};

TEST_P(MalformedFrame, MalformedFrameEndsTheConnectionAndTheAgentReconnects) {
  connect();
  coordinator_->send_bytes(GetParam().make());
  take_hello(2);
  EXPECT_EQ(commands_.orders(), 0U);
  coordinator_->send(order<wire::StopJob>(2));
  EXPECT_EQ(coordinator_->receive<wire::Reply>("the answer on the new connection").request_id, 2U);
}
INSTANTIATE_TEST_SUITE_P(CoordinatorLink, MalformedFrame, ::testing::ValuesIn(kBadFrames),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace ckpt::agent
