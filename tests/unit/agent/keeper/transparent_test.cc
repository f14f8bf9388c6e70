// SPDX-License-Identifier: Apache-2.0
// Tests of the keeper of a transparent job: its memory, its dumps, its end.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <thread>

#include "tests/unit/agent/keeper/transparent_fixture.h"

namespace ckpt::keeper {
namespace {

TEST_F(TransparentTest, ProgramIsStartedWithThePreloadAndTheQuota) {
  Json config = transparent();
  config["preload"] = "/no/such/shim.so";
  config["gpu_memory_quota"] = 4096;
  config["env"]["LD_PRELOAD"] = "/other.so";
  config["env"]["GPUMIGRATE_GPU_MEMORY"] = "1";
  ASSERT_EQ(launch(root_ + "/job", config), 0);
  keepers_.push_back(keeper_pid(root_ + "/job"));
  Agent agent(root_ + "/job");
  agent.wait_for_phase(Phase::kRunning);
  // The loader reports the missing files before this line.
  EXPECT_NE(text_of(root_ + "/job/out.log").find("preload /no/such/shim.so:/other.so quota 4096\n"),
            std::string::npos);
}

TEST_F(TransparentTest, RankCountsAsRunningAfterItsHello) {
  Agent agent(start_transparent());
  agent.wait_for_phase(Phase::kRunning);
  const local::Status now = status(agent);
  EXPECT_EQ(now.mode, MigrationMode::kTransparent);
  EXPECT_EQ(now.sessions, 1u);
  EXPECT_EQ(now.session_pid, now.rank_pid);
  EXPECT_EQ(agent.ask<local::DescribeEnd>(local::Describe{}).summary.movable, 1u);
}

TEST_F(TransparentTest, JobWithASecondGpuProcessCannotBeMoved) {
  Agent agent(start_transparent({"second"}));
  agent.wait_for_phase(Phase::kRunning);
  while (status(agent).sessions < 2 && !HasFailure()) {
  }
  const auto summary = agent.ask<local::DescribeEnd>(local::Describe{}).summary;
  EXPECT_EQ(summary.movable, 0u);
  EXPECT_NE(summary.reason.view().find("2 processes"), std::string_view::npos);
  EXPECT_NE(refusal_of(agent, local::Pause{}).text.view().find("2 processes"), std::string_view::npos);
}

TEST_F(TransparentTest, MemoryIsRemappedFromTheExportedSet) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  pause_and_release(agent);
  EXPECT_EQ(status(agent).exported_regions, 3u);
  EXPECT_NE(refusal_of(agent, local::Resume{2, 0, 0}).text.view().find("released"), std::string_view::npos);
  refusal_of(agent, local::Export{});
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  EXPECT_EQ(agent.ask<local::Running>(local::Resume{2, 0, 0}).was_paused, 1u);
  agent.ask<local::Done>(local::StopExport{});
  EXPECT_EQ(status(agent).exported_regions, 0u);
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: region 1 region 2 region 3\n"), std::string::npos);
}

TEST_F(TransparentTest, RegionsOfSeveralBatchesAreRemapped) {
  const std::string folder = start_transparent({"200"});
  Agent agent(folder);
  pause_and_release(agent);
  EXPECT_EQ(status(agent).exported_regions, 200u);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(TransparentTest, ArrivedMemoryIsMapped) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  pause_and_release(agent);
  deposit(agent, 6, "old");
  deposit(agent, 7, "new");
  EXPECT_EQ(status(agent).arrived_regions, 3u);
  EXPECT_EQ(status(agent).arrived_migration, 7u);
  refusal_of(agent, local::Map{.set = MemorySet::kArrived, .migration = 6});
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kArrived, .migration = 7});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: new 1 new 2 new 3\n"), std::string::npos);
  // The export is valid again, for nothing has run since.
  agent.ask<local::Released>(local::Release{});
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: region 1 region 2 region 3\n"), std::string::npos);
  agent.ask<local::Done>(local::Withdraw{6});
  EXPECT_EQ(status(agent).arrived_regions, 3u) << "of another migration";
  agent.ask<local::Done>(local::Withdraw{7});
  EXPECT_EQ(status(agent).arrived_regions, 0u);
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(TransparentTest, RankAllocatesMemoryForTheMover) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  pause_and_release(agent);
  agent.send(local::Make{4, {{1, 1}, {2, 1}, {3, 1}}});
  ASSERT_TRUE(wait_readable(agent.socket().fd()));
  Result<local::Received> received = agent.socket().receive();
  ASSERT_TRUE(received.has_value());
  ASSERT_TRUE(std::holds_alternative<local::Made>(received->message.body));
  for (const UniqueFd& fd : received->descriptors) EXPECT_EQ(::pwrite(fd.get(), "filled", 6, 0), 6);
  EXPECT_EQ(status(agent).memory, MemoryState::kMapping);
  refusal_of(agent, local::Resume{2, 0, 0});
  agent.ask<local::Mapped>(local::Map{});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: filled filled filled\n"), std::string::npos);
}

TEST_F(TransparentTest, MemoryAllocatedByTheRankReplacesTheArrivedSet) {
  const std::string folder = start_transparent();
  {
    Agent agent(folder);
    pause_and_release(agent);
    deposit(agent, 7, "new");
    EXPECT_NE(refusal_of(agent, local::Fetch{MemorySet::kArrived, 0, 6, 0})
                  .text.view()
                  .find("requested memory set"),
              std::string_view::npos);
    std::uint64_t from = 0;
    for (std::uint64_t id = 1; id <= 2; ++id) {  // fetches two of the three regions
      const auto held = agent.ask<local::Held>(local::Fetch{MemorySet::kArrived, 0, 7, from});
      ASSERT_EQ(held.records.size(), 1u) << "never more than the largest region has";
      EXPECT_EQ(held.records[0].id, id);
      from = held.sequence;
      const UniqueFd old = agent.take_descriptor();
      const auto made = agent.ask<local::Made>(local::Make{id, {{id, 1}}});
      EXPECT_EQ(made.records[0].id, id);
      const UniqueFd own = agent.take_descriptor();
      EXPECT_EQ(::pwrite(own.get(), "own", 3, 0), 3);
      const auto wrong = local::Replace{1, 7, {{id, 1, 2 * kBytes, {}}}};
      agent.send(wrong, own.get());
      EXPECT_NE(agent.next_failure().text.view().find("does not have 8192 bytes"), std::string_view::npos);
      agent.ask<local::Done>(local::Replace{1, 7, {{id, 1, kBytes, {}}}}, own.get());
    }
  }
  Agent agent(folder);
  EXPECT_EQ(agent.status().memory, MemoryState::kMapping);
  refusal_of(agent, local::Resume{2, 0, 0});
  agent.ask<local::Released>(local::Release{});  // succeeds although not all of the memory is exported
  const auto owned = local::Replace{1, 7, {{1, 1, kBytes, {}}}};
  agent.send(owned, file_with("late").get());
  EXPECT_NE(agent.next_failure().text.view().find("memory that the rank has created"),
            std::string_view::npos);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kArrived, .migration = 7});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: own own new 3\n"), std::string::npos);
}

TEST_F(TransparentTest, FetchEndsAfterTheLastMemoryOfTheSet) {
  Agent agent(start_transparent({"5"}));
  pause_and_release(agent);
  std::uint64_t from = 0;
  for (int i = 0; i < 5; ++i)
    from = agent.ask<local::Held>(local::Fetch{MemorySet::kExported, 0, 0, from}).sequence;
  agent.ask<local::Done>(local::Fetch{MemorySet::kExported, 0, 0, from});
}

TEST_F(TransparentTest, FreedRegionsAreWithdrawn) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  deposit(agent, 7, "new");
  agent.ask<local::Done>(local::WithdrawRegions{1, 6, {{1, 1}}});
  EXPECT_EQ(status(agent).arrived_regions, 3u) << "of another migration";
  agent.ask<local::Done>(local::WithdrawRegions{1, 7, {{1, 1}, {3, 2}}});
  EXPECT_EQ(status(agent).arrived_regions, 2u) << "of another generation";
}

TEST_F(TransparentTest, RankReleasesNoMemoryThatTheKeeperLacks) {
  Agent agent(start_transparent());
  agent.wait_for_phase(Phase::kRunning);
  refusal_of(agent, local::Release{});  // the rank is not paused
  export_all(agent);
  agent.ask<local::Paused>(local::Pause{});
  agent.ask<local::Done>(local::StopExport{});
  EXPECT_NE(refusal_of(agent, local::Release{}).text.view().find("not all regions"), std::string_view::npos);
  EXPECT_EQ(status(agent).memory, MemoryState::kMapped);
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(TransparentTest, MemoryStaysReleasedAfterAFailedMap) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  EXPECT_NE(refusal_of(agent, local::Map{}).text.view().find("not all regions"), std::string_view::npos);
  EXPECT_EQ(status(agent).memory, MemoryState::kReleased);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
}

TEST_F(TransparentTest, MemorySetsInUseByTheJobOutliveTheAgent) {
  const std::string folder = start_transparent();
  {
    Agent agent(folder);
    pause_and_release(agent);
  }
  Agent agent(folder);
  EXPECT_EQ(agent.status().phase, Phase::kPaused);
  EXPECT_EQ(agent.status().exported_regions, 3u);
  agent.ask<local::Done>(local::StopExport{});
  EXPECT_EQ(status(agent).exported_regions, 3u);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
}

TEST_F(TransparentTest, ExportIsDroppedWhenItsAgentDisconnects) {
  const std::string folder = start_transparent();
  {
    Agent agent(folder);
    agent.wait_for_phase(Phase::kRunning);
    EXPECT_EQ(export_all(agent), 3u);
    EXPECT_EQ(status(agent).exported_regions, 3u);
  }
  EXPECT_EQ(Agent(folder).status().exported_regions, 0u);
}

TEST_F(TransparentTest, DumpedRankReconnectsWhenCalled) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  agent.wait_for_phase(Phase::kRunning);
  export_all(agent);
  agent.ask<local::Paused>(local::Pause{});
  refusal_of(agent, local::PrepareDump{});  // the rank's memory is still mapped
  agent.ask<local::Released>(local::Release{});
  refusal_of(agent, local::Reattach{});
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  EXPECT_EQ(status(agent).phase, Phase::kDumped);
  EXPECT_EQ(status(agent).sessions, 0u);
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(rank) + "/fd"))
    EXPECT_EQ(fs::read_symlink(entry.path()).string().find("socket:"), std::string::npos);
  EXPECT_EQ(text_of("/proc/" + std::to_string(rank) + "/maps").find("ckpt-control"), std::string::npos);
  ::kill(rank, SIGSTOP);  // the state in which a dump leaves the rank
  agent.ask<local::Done>(local::Reattach{});
  EXPECT_EQ(status(agent).phase, Phase::kPaused);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

// The rank's last message must not be lost with the connection. Otherwise the keeper would treat the rank as
// ended and would not reattach it.
TEST_F(TransparentTest, RankIsReportedAsDumpedEvenIfItDisconnectsWithAnUnreadMessage) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  ::kill(rank, SIGSTOP);
  while (state_of(rank) != 'T') std::this_thread::yield();
  agent.send(local::PrepareDump{});
  agent.ask<local::Done>(local::StopExport{});  // the message is queued behind the order to leave
  ::kill(rank, SIGCONT);
  agent.next<local::DumpReady>();
  EXPECT_EQ(status(agent).phase, Phase::kDumped);
  agent.ask<local::Done>(local::Reattach{});
  EXPECT_EQ(status(agent).phase, Phase::kPaused);
}

TEST_F(TransparentTest, DumpedProcessStaysStoppedAfterALeaseArrives) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  agent.ask<local::Done>(local::SetDeadline{1});
  agent.next<local::RankStopped>();
  agent.ask<local::Done>(local::SetDeadline{local::kNoDeadline});
  EXPECT_EQ(state_of(rank), 'T');
  agent.ask<local::Done>(local::Reattach{});
  EXPECT_NE(state_of(rank), 'T');
}

TEST_F(TransparentTest, MovedProcessIsKilledInsteadOfContinued) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  pause_and_release(agent);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  agent.ask<local::Done>(local::Moved{});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
  EXPECT_EQ(status_of(folder)["moved"], true);
}

// A tracer that simulates a CRIU process which dumps a process while that process is killed. The tracer holds
// the traced process and does not check whether it has ended.
class DumpingTracer {
 public:
  explicit DumpingTracer(pid_t traced) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd ready(ends[0]);
    UniqueFd write_end(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool traces = ::ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0;
      (void)!::write(ends[1], traces ? "y" : "n", 1);
      for (;;) ::pause();
    }
    write_end.reset();
    char answer = 0;
    EXPECT_EQ(::read(ready.get(), &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
  }
  DumpingTracer(const DumpingTracer&) = delete;
  DumpingTracer& operator=(const DumpingTracer&) = delete;
  ~DumpingTracer() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

TEST_F(TransparentTest, ProcessKilledDuringItsDumpEnds) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  const DumpingTracer criu(rank);
  agent.ask<local::Done>(local::Kill{});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
}

TEST_F(TransparentTest, JobRunsAfterWithdrawnPauses) {
  Agent agent(start_transparent());
  agent.wait_for_phase(Phase::kRunning);
  for (int i = 0; i < 50; ++i) {
    agent.send(local::Pause{});
    agent.ask<local::Running>(local::Resume{1, 0, 0});
  }
}

// The next agent decides from this status whether an incarnation has run.
TEST_F(TransparentTest, DeathDuringResumeIsReportedForThePreviousIncarnation) {
  const std::string folder = start_transparent({"resumes-once"});
  Agent agent(folder);
  agent.wait_for_phase(Phase::kRunning);
  agent.ask<local::Paused>(local::Pause{});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  agent.ask<local::Paused>(local::Pause{});
  refusal_of(agent, local::Resume{3, 0, 0});
  agent.next<local::RankExited>();
  EXPECT_EQ(status(agent).incarnation, 2u);
  EXPECT_EQ(status_of(folder)["incarnation"], 2u);
  EXPECT_EQ(status_of(folder)["ran"], true);
}

TEST_F(TransparentTest, CooperativeRankRefusesTransparentRequests) {
  Agent agent(start({"steps"}));
  agent.wait_for_phase(Phase::kRunning);
  agent.ask<local::Paused>(local::Pause{});
  EXPECT_NE(refusal_of(agent, local::Release{}).text.view().find("cooperative"), std::string_view::npos);
}

TEST_F(TransparentTest, CrashPointAfterADepositReplyKillsTheKeeper) {
  std::ofstream(root_ + "/keeper.j-1.fresh.505") << "kill";
  Agent agent(start_transparent());
  pause_and_release(agent);
  const Watch rank(static_cast<pid_t>(status(agent).rank_pid));
  deposit(agent, 7, "new");
  EXPECT_TRUE(rank.ended());
}

TEST_F(TransparentTest, CrashPointAfterTheDisconnectionForADumpKillsTheKeeper) {
  std::ofstream(root_ + "/keeper.j-1.fresh.506") << "kill";
  Agent agent(start_transparent());
  pause_and_release(agent);
  const Watch rank(static_cast<pid_t>(status(agent).rank_pid));
  agent.send(local::PrepareDump{});
  EXPECT_TRUE(rank.ended());
}

}  // namespace
}  // namespace ckpt::keeper
