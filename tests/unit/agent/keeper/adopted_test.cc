// SPDX-License-Identifier: Apache-2.0
// Tests of the keeper of a process that it has not started.
#include "agent/keeper/rank/adopted_process.h"
#include "agent/keeper/rank/descent.h"
#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {
namespace {

void kill_tree(pid_t root) {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    for (const pid_t pid : tree_of(root)) ::kill(pid, signal);
  }
}

class AdoptedTest : public KeeperTest {
 protected:
  // Starts a shell with a child; neither leads a process group of its own.
  AdoptedTest() {
    std::vector<std::string> words = {"/bin/sh", "-c", "sleep 1000 >/dev/null & echo ready; wait"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd output(ends[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    EXPECT_EQ(::posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    EXPECT_TRUE(wait_readable(output.get()));
  }
  ~AdoptedTest() override {
    kill_tree(process_);
    ::waitpid(process_, nullptr, 0);
  }

  std::string adopt(std::uint64_t start_ticks) {
    Json wanted = config({});
    wanted["way"] = "adopted";
    wanted["adopt"] = {{"pid", process_}, {"start_ticks", start_ticks}};
    const std::string folder = root_ + "/job";
    result_ = launch(folder, wanted);
    if (result_ == 0) keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  std::string adopt() { return adopt(start_ticks_of(process_)); }

  pid_t process_ = 0;
  int result_ = -1;
};

TEST_F(AdoptedTest, KeeperRunsTheJobAndAnswersForAProcessWithoutASession) {
  Agent agent(adopt());
  EXPECT_EQ(agent.status().phase, Phase::kRunning);
  EXPECT_EQ(agent.status().rank_pid, static_cast<std::uint32_t>(process_));
  EXPECT_EQ(agent.status().session_pid, static_cast<std::uint32_t>(process_));
  EXPECT_EQ(agent.ask<local::DescribeEnd>(local::Describe{}).summary.movable, 1u);
  EXPECT_EQ(agent.ask<local::ExportEnd>(local::Export{}).summary.regions, 0u);
  agent.ask<local::Done>(local::StopExport{});
  agent.ask<local::Paused>(local::Pause{});
  EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).phase, Phase::kPaused);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).phase, Phase::kDumped);
  refusal_of(agent, local::Resume{2, local::kNoDeadline, 0});
  agent.ask<local::Done>(local::Reattach{});
  EXPECT_EQ(agent.ask<local::Running>(local::Resume{3, local::kNoDeadline, 0}).incarnation, 3u);
}

TEST_F(AdoptedTest, ExpiredLeaseStopsTheProcessTree) {
  Agent agent(adopt());
  agent.send(local::SetDeadline{now_ns() + 1'000'000});
  agent.next<local::RankStopped>();  // the message arrives before the answer or after it
  EXPECT_TRUE(stand_still(tree_of(process_)));
  EXPECT_EQ(state_of(process_), 'T');
  agent.send(local::SetDeadline{local::kNoDeadline});
  agent.next<local::RankContinued>();
  agent.next<local::Done>();
  EXPECT_NE(state_of(process_), 'T');
}

TEST_F(AdoptedTest, ExitOfTheProcessIsDetectedWithoutAnExitCode) {
  const std::string folder = adopt();
  Agent agent(folder);
  kill_tree(process_);
  EXPECT_EQ(agent.next<local::RankExited>().wait_status, kUnknownStatus);
  EXPECT_EQ(status_of(folder).value("unknown", false), true);
  EXPECT_FALSE(status_of(folder).contains("exit_code"));
}

TEST_F(AdoptedTest, MovedMessageEndsTheProcessAndItsDescendants) {
  const std::vector<pid_t> tree = tree_of(process_);
  ASSERT_EQ(tree.size(), 2u);
  Watch child(tree.back());
  Agent agent(adopt());
  refusal_of(agent, local::Moved{});
  agent.ask<local::Paused>(local::Pause{});
  agent.ask<local::Done>(local::Moved{});
  agent.next<local::RankExited>();
  EXPECT_TRUE(child.ended());
}

TEST_F(AdoptedTest, AnotherProcessWithTheSamePidIsNotAdopted) {
  adopt(start_ticks_of(process_) + 1);
  EXPECT_EQ(result_, 1);
  EXPECT_NE(state_of(process_), 'Z');
}

TEST_F(AdoptedTest, ProcessContinuesWithoutItsKeeper) {
  adopt();
  ASSERT_EQ(result_, 0);
  ::kill(keepers_.back(), SIGKILL);
  EXPECT_TRUE(Watch(keepers_.back()).ended());
  EXPECT_EQ(tree_of(process_).size(), 2u);
  EXPECT_NE(state_of(process_), 'T');
}

}  // namespace
}  // namespace ckpt::keeper
