// SPDX-License-Identifier: Apache-2.0
// Tests of a restored process that is held until it is resumed.
#include <thread>

#include "agent/keeper/rank/thread_hold.h"

#include "tests/unit/agent/keeper/transparent_fixture.h"

namespace ckpt::keeper {
namespace {

// Tests with a process that has threads "restorer" and "program", stopped as CRIU leaves it.
class HeldTest : public TransparentTest {
 protected:
  void dump(Agent& agent) {
    pause_and_release(agent);
    rank_ = static_cast<pid_t>(status(agent).rank_pid);
    agent.ask<local::DumpReady>(local::PrepareDump{});
    ::kill(rank_, SIGSTOP);
    // Other threads of the rank may not have stopped yet.
    while (state_of(rank_) != 'T') std::this_thread::yield();
  }
  pid_t thread(const std::string& name) {
    for (const pid_t id : threads_of(rank_)) {
      if (text_of("/proc/" + std::to_string(rank_) + "/task/" + std::to_string(id) + "/comm") == name + "\n")
        return id;
    }
    ADD_FAILURE() << "no thread " << name;
    return 0;
  }
  bool is_held(const std::string& name) {
    return std::string("tT").find(state_of(thread(name))) != std::string::npos;
  }
  local::Reattach hold(std::uint32_t limit_ms = 3'600'000) {
    local::Reattach how;
    how.restore_thread = static_cast<std::uint32_t>(thread("restorer"));
    how.hold_ms = limit_ms;
    return how;
  }

  pid_t rank_ = 0;
};

TEST_F(HeldTest, OnlyWorkersOfARestoredProcessRunBeforeItsResume) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  agent.ask<local::Done>(hold());
  EXPECT_TRUE(is_held("program"));
  EXPECT_FALSE(is_held("restorer"));
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  EXPECT_TRUE(is_held("program"));
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  EXPECT_FALSE(is_held("program"));
}

TEST_F(HeldTest, HoldEndsAtItsTimeLimit) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  agent.ask<local::Done>(hold(1));
  const Nanos limit = now_ns() + kHangMs * kNanosPerMs;
  while (is_held("program") && now_ns() < limit) std::this_thread::yield();
  EXPECT_FALSE(is_held("program"));
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(HeldTest, HeldProcessEndsWhenItsKeeperIsKilled) {
  const std::string folder = start_transparent({"threads"});
  Agent agent(folder);
  dump(agent);
  agent.ask<local::Done>(hold());
  const Watch rank(rank_);
  ::kill(keeper_pid(folder), SIGKILL);
  EXPECT_TRUE(rank.ended());
}

TEST_F(HeldTest, HeldProcessCanBeKilled) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  agent.ask<local::Done>(hold());
  agent.ask<local::Done>(local::Kill{});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
}

TEST_F(HeldTest, RenewedLeaseDoesNotEndAHold) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  agent.ask<local::Done>(hold());
  agent.ask<local::Done>(local::SetDeadline{1});
  agent.ask<local::Done>(local::SetDeadline{local::kNoDeadline});
  EXPECT_TRUE(is_held("program"));
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  EXPECT_FALSE(is_held("program"));
}

TEST_F(HeldTest, HoldWithAnInvalidWorkerIsRefused) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  local::Reattach how = hold();
  how.restore_thread = static_cast<std::uint32_t>(::getpid());
  agent.send(how);
  EXPECT_EQ(agent.next_failure().code, static_cast<std::uint32_t>(ErrorCode::kNotFound));
  EXPECT_EQ(status(agent).phase, Phase::kDumped);
  agent.ask<local::Done>(local::Reattach{});
}

}  // namespace
}  // namespace ckpt::keeper
