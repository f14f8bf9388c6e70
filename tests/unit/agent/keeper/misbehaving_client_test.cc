// SPDX-License-Identifier: Apache-2.0
// Tests of a keeper's program that misbehaves. The program sends unsolicited messages, leaves processes
// behind, and requests more sessions than it may have.
#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {
namespace {

using local::MemorySet;
using local::MemoryState;

class MisbehavingClientTest : public KeeperTest {
 protected:
  std::string start_rank(const std::string& manners, const std::string& mode = "transparent") {
    Json config = this->config({manners});
    config["argv"][0] = FAKE_RANK;
    config["way"] = mode;
    const std::string folder = root_ + "/job";
    EXPECT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  static local::Status status(Agent& agent) { return agent.ask<local::Status>(local::Attach{}); }
};

TEST_F(MisbehavingClientTest, UnsolicitedMessagesChangeNothing) {
  Agent agent(start_rank("rude"));
  agent.wait_for_phase(Phase::kRunning);
  agent.ask<local::DescribeEnd>(local::Describe{});  // the program's messages arrived before this answer
  local::Status now = status(agent);
  EXPECT_EQ(now.phase, Phase::kRunning);
  EXPECT_EQ(now.memory, MemoryState::kMapped);
  EXPECT_EQ(now.sessions, 1u);
  EXPECT_EQ(now.resumed_ns, 0);

  const std::uint64_t request = agent.send(local::Export{});
  agent.send(local::ExportAck{agent.next<local::ExportBatch>().sequence});
  agent.next<local::ExportEnd>();
  EXPECT_EQ(status(agent).exported_regions, 3u) << "a region of an export that is none, beside " << request;

  EXPECT_GT(agent.ask<local::Paused>(local::Pause{}).barrier_entry_ns, 1);
  EXPECT_GT(agent.ask<local::Released>(local::Release{}).at_ns, 1);
  EXPECT_EQ(status(agent).memory, MemoryState::kReleased);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  EXPECT_GT(agent.ask<local::Running>(local::Resume{2, 0, 0}).resumed_ns, 1);
}

TEST_F(MisbehavingClientTest, KeeperMessageFromARankEndsTheSession) {
  Agent agent(start_rank("strange"));
  agent.wait_for_phase(Phase::kRunning);
  agent.send(local::Describe{});
  EXPECT_EQ(WEXITSTATUS(agent.next<local::RankExited>().wait_status), 9)
      << "it goes when its session is gone";
}

TEST_F(MisbehavingClientTest, SessionOfAnotherModeOrUninvitedSessionIsRefused) {
  const std::string folder = start_rank("intrudes");
  Agent agent(folder);
  agent.wait_for_phase(Phase::kRunning);
  EXPECT_EQ(status(agent).sessions, 1u);
  EXPECT_NE(text_of(folder + "/out.log").find("other way 0 uncalled 0\n"), std::string::npos);
}

TEST_F(MisbehavingClientTest, SecondSessionOfACooperativeJobIsRefused) {
  const std::string folder = start_rank("twice", "cooperative");
  EXPECT_TRUE(Watch(keepers_.back()).ended());
  EXPECT_NE(text_of(folder + "/out.log").find("first 1 again 0\n"), std::string::npos);
}

TEST_F(MisbehavingClientTest, KeeperEndsIfItsProgramExitedBeforeTheHelloWasRead) {
  const std::string folder = start_rank("late", "cooperative");
  Agent agent(folder);
  const auto rank = static_cast<pid_t>(agent.status().rank_pid);
  std::ofstream(root_ + "/go") << "now";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kHangMs);
  while (state_of(rank) != 'Z' && std::chrono::steady_clock::now() < deadline) ::usleep(1000);
  ASSERT_EQ(state_of(rank), 'Z');
  ASSERT_EQ(::kill(keepers_.back(), SIGCONT), 0);
  EXPECT_EQ(WEXITSTATUS(agent.next<local::RankExited>().wait_status), 3);
  agent.ask<local::Done>(local::Shutdown{});
  EXPECT_TRUE(Watch(keepers_.back()).ended());
}

TEST_F(MisbehavingClientTest, RemainingProcessesOfAProgramEndWithTheProgram) {
  Json config = this->config({});
  config["argv"] = {"/bin/sh", "-c", "sleep 1000 & echo $! > " + root_ + "/left"};
  ASSERT_EQ(launch(root_ + "/job", config), 0);
  keepers_.push_back(keeper_pid(root_ + "/job"));
  EXPECT_TRUE(Watch(keepers_.back()).ended());
  EXPECT_TRUE(Watch(std::atoi(text_of(root_ + "/left").c_str())).ended());
}

TEST_F(MisbehavingClientTest, ConnectionWithoutAttachIsNotTreatedAsTheAgent) {
  const std::string folder = start({"wait"});
  Agent agent(folder);
  local::Socket stranger = std::move(*local::Socket::connect(folder + "/keeper.sock"));
  ASSERT_TRUE(stranger.send({0, 1, local::Kill{}}).has_value());
  ASSERT_TRUE(wait_readable(stranger.fd()));
  EXPECT_EQ(stranger.receive()->transfer, local::Transfer::kClosed);
  EXPECT_EQ(status(agent).phase, Phase::kStarting);
}

TEST_F(MisbehavingClientTest, IdleUnknownConnectionsAreLimited) {
  const std::string folder = start({"wait"});
  Agent agent(folder);
  const auto descriptors = [this] {
    return std::distance(fs::directory_iterator("/proc/" + std::to_string(keepers_.back()) + "/fd"), {});
  };
  const auto before = descriptors();
  std::vector<local::Socket> strangers;
  for (int i = 0; i < 20; ++i)  // the remaining connections wait in the listener
    strangers.push_back(std::move(*local::Socket::connect(folder + "/keeper.sock")));
  for (int i = 0; i < 3; ++i) status(agent);  // waits until the keeper has completed its loop
  EXPECT_LE(descriptors(), before + 16);
  strangers.clear();
  EXPECT_EQ(Agent(folder).status().phase, Phase::kStarting) << "and make room when they go";
}

}  // namespace
}  // namespace ckpt::keeper
