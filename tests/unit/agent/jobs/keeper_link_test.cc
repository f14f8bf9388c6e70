// SPDX-License-Identifier: Apache-2.0
// Tests of the agent's requests to a keeper. The keeper is a packet link of this test and answers every
// request with Done.
#include "agent/jobs/keeper_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libckpt/inprocess/local/socket.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

using testing::HasSubstr;

class KeeperLinkTest : public ::testing::Test {
 protected:
  void SetUp() override { connect(); }
  void connect() {
    auto listener = local::Listener::create(folder_ / "keeper");
    ASSERT_TRUE(listener);
    auto link = KeeperLink::connect(io_.get_executor(), folder_ / "keeper", Milliseconds(2000),
                                    KeeperLink::Handlers{});
    ASSERT_TRUE(link) << link.error().to_string();
    link_ = *link;
    auto accepted = listener->accept();
    ASSERT_TRUE(accepted && *accepted);
    auto keeper = PacketLink::create(io_.get_executor(), (*accepted)->release(), local::kMaxMessageBytes);
    ASSERT_TRUE(keeper);
    keeper_ = *keeper;
    keeper_->start({[this](const Packet& packet) { answer(packet); }, [](const Error&) {}});
  }
  void TearDown() override {
    link_->close();
    keeper_->close();
  }
  void answer(const Packet& packet) {
    auto message = local::parse(packet.bytes, packet.descriptors.size());
    ASSERT_TRUE(message) << message.error().to_string();
    if (const auto* gone = std::get_if<local::WithdrawRegions>(&message->body)) {
      for (const local::RegionKey& key : gone->records) withdrawn_.push_back(key.id);
    }
    local::Message done;
    done.request = message->request;
    numbers_.push_back(done.request);
    done.body = local::Done{};
    Packet reply;
    reply.bytes = *local::encode(done);
    keeper_->send(std::move(reply));
    ++heard_;
  }
  TemporaryFolder folder_;
  asio::io_context io_;
  std::shared_ptr<KeeperLink> link_;
  std::shared_ptr<PacketLink> keeper_;
  std::vector<std::uint64_t> withdrawn_;
  std::vector<std::uint64_t> numbers_;  // the numbers of the requests
  int heard_ = 0;
};

TEST_F(KeeperLinkTest, OversizedBatchFailsAndReportsTheRemedy) {
  std::vector<local::RegionRecord> records(local::kMaxRecords + 1);
  const auto deposited = run_until_done(io_, link_->deposit(1, std::move(records), {}));
  ASSERT_FALSE(deposited);
  EXPECT_EQ(deposited.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(deposited.error().to_string(), HasSubstr("Deposit"));
  EXPECT_THAT(deposited.error().to_string(), HasSubstr("split the message"));
  EXPECT_EQ(heard_, 0);
  // The link still works afterwards.
  EXPECT_TRUE(run_until_done(io_, link_->withdraw(1)));
}

// A rank may answer a request of an agent that has been restarted since. The answer must not match a request
// of the next agent.
TEST_F(KeeperLinkTest, RequestNumbersAreNeverReusedAcrossAgents) {
  ASSERT_TRUE(run_until_done(io_, link_->withdraw(1)));
  ASSERT_TRUE(run_until_done(io_, link_->withdraw(2)));
  TearDown();
  connect();
  ASSERT_TRUE(run_until_done(io_, link_->withdraw(1)));
  ASSERT_EQ(numbers_.size(), 3U);
  EXPECT_GT(numbers_[2], numbers_[1]);
}

TEST_F(KeeperLinkTest, ManyRegionsAreWithdrawnInSeveralMessages) {
  std::vector<local::RegionKey> keys;
  for (std::uint64_t id = 1; id <= 2 * local::kMaxRecords + 1; ++id) keys.push_back({id, 1});
  ASSERT_TRUE(run_until_done(io_, link_->withdraw_regions(1, std::move(keys))));
  EXPECT_EQ(heard_, 3);
  ASSERT_EQ(withdrawn_.size(), 2 * local::kMaxRecords + 1);
  for (std::size_t i = 0; i < withdrawn_.size(); ++i) EXPECT_EQ(withdrawn_[i], i + 1);
}

}  // namespace
}  // namespace ckpt::agent
