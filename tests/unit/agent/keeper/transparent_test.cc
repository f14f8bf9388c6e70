// SPDX-License-Identifier: Apache-2.0
// The keeper of a transparent job, with a rank whose device memory is memory files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "agent/keeper/rank/thread_hold.h"
#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {
namespace {

using local::MemorySet;
using local::MemoryState;

constexpr std::uint64_t kBytes = 4096;

UniqueFd file_with(const std::string& text) {
  UniqueFd fd(::memfd_create("arrived", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), kBytes), 0);
  EXPECT_EQ(::pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

class TransparentTest : public KeeperTest {
 protected:
  TransparentTest() { ::setenv("CKPT_FAULT_DIR", root_.c_str(), 1); }
  ~TransparentTest() override { ::unsetenv("CKPT_FAULT_DIR"); }

  Json transparent(const std::vector<std::string>& arguments = {}) {
    Json config = this->config(arguments);
    config["argv"][0] = FAKE_RANK;
    config["way"] = "transparent";
    return config;
  }
  std::string start_transparent(const std::vector<std::string>& arguments = {}) {
    const std::string folder = root_ + "/job";
    EXPECT_EQ(launch(folder, transparent(arguments)), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  static local::Status status(Agent& agent) { return agent.ask<local::Status>(local::Attach{}); }

  // Takes every batch of an export, whose descriptors are gone here at once.
  static std::size_t export_all(Agent& agent) {
    std::size_t regions = 0;
    agent.send(local::Export{});
    for (;;) {
      if (!wait_readable(agent.socket().fd())) return 0;
      Result<local::Received> received = agent.socket().receive();
      if (!received.has_value()) return 0;
      const local::Body& body = received.assume_value().message.body;
      if (std::holds_alternative<local::ExportEnd>(body)) return regions;
      const auto* batch = std::get_if<local::ExportBatch>(&body);
      if (batch == nullptr) continue;
      regions += batch->records.size();
      agent.send(local::ExportAck{batch->sequence});
    }
  }
  static void pause_and_release(Agent& agent) {
    agent.wait_for_phase(Phase::kRunning);
    export_all(agent);
    EXPECT_EQ(agent.ask<local::Paused>(local::Pause{}).host_state_bytes, 0u);
    agent.ask<local::Released>(local::Release{});
    EXPECT_EQ(status(agent).memory, MemoryState::kReleased);
  }
  static void deposit(Agent& agent, std::uint64_t migration, const std::string& text) {
    local::Deposit deposit{1, migration, {}};
    std::vector<UniqueFd> files;
    std::vector<int> numbers;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      deposit.records.push_back({id, 1, kBytes, {}});
      files.push_back(file_with(text + " " + std::to_string(id)));
      numbers.push_back(files.back().get());
    }
    ASSERT_TRUE(agent.socket().send({0, 1000 + migration, deposit}, numbers).has_value());
    agent.next<local::Done>();
  }
};

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
  // The loader complains about the missing files first.
  EXPECT_NE(text_of(root_ + "/job/out.log").find("preload /no/such/shim.so:/other.so quota 4096\n"),
            std::string::npos);
}

TEST_F(TransparentTest, RunsFromItsHelloOn) {
  Agent agent(start_transparent());
  agent.wait_for_phase(Phase::kRunning);
  const local::Status now = status(agent);
  EXPECT_EQ(now.way, MigrationMode::kTransparent);
  EXPECT_EQ(now.sessions, 1u);
  EXPECT_EQ(now.session_pid, now.rank_pid);
  EXPECT_EQ(agent.ask<local::DescribeEnd>(local::Describe{}).summary.movable, 1u);
}

TEST_F(TransparentTest, SecondProcessWithAGpuMakesTheJobNotMovable) {
  Agent agent(start_transparent({"second"}));
  agent.wait_for_phase(Phase::kRunning);
  while (status(agent).sessions < 2 && !HasFailure()) {
  }
  const auto summary = agent.ask<local::DescribeEnd>(local::Describe{}).summary;
  EXPECT_EQ(summary.movable, 0u);
  EXPECT_NE(summary.reason.view().find("2 processes"), std::string_view::npos);
  EXPECT_NE(refusal_of(agent, local::Pause{}).text.view().find("2 processes"), std::string_view::npos);
}

TEST_F(TransparentTest, MemoryIsMappedAgainFromTheExportedSet) {
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

TEST_F(TransparentTest, RegionsOfSeveralBatchesComeBack) {
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
  // And back again, for nothing has run since.
  agent.ask<local::Released>(local::Release{});
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: region 1 region 2 region 3\n"), std::string::npos);
  agent.ask<local::Done>(local::Withdraw{6});
  EXPECT_EQ(status(agent).arrived_regions, 3u) << "of another migration";
  agent.ask<local::Done>(local::Withdraw{7});
  EXPECT_EQ(status(agent).arrived_regions, 0u);
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(TransparentTest, RankMakesMemoryForAMoverToFill) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  pause_and_release(agent);
  agent.send(local::Make{4, {{1, 1}, {2, 1}, {3, 1}}});
  ASSERT_TRUE(wait_readable(agent.socket().fd()));
  Result<local::Received> received = agent.socket().receive();
  ASSERT_TRUE(received.has_value());
  ASSERT_TRUE(std::holds_alternative<local::Made>(received.assume_value().message.body));
  for (const UniqueFd& fd : received.assume_value().descriptors)
    EXPECT_EQ(::pwrite(fd.get(), "filled", 6, 0), 6);
  EXPECT_EQ(status(agent).memory, MemoryState::kMapping);
  refusal_of(agent, local::Resume{2, 0, 0});
  agent.ask<local::Mapped>(local::Map{});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: filled filled filled\n"), std::string::npos);
}

TEST_F(TransparentTest, MemoryMadeByTheRankReplacesTheArrivedSet) {
  const std::string folder = start_transparent();
  {
    Agent agent(folder);
    pause_and_release(agent);
    deposit(agent, 7, "new");
    EXPECT_NE(refusal_of(agent, local::Fetch{MemorySet::kArrived, 0, 6, 0}).text.view().find("no such set"),
              std::string_view::npos);
    std::uint64_t from = 0;
    for (std::uint64_t id = 1; id <= 2; ++id) {  // of the three
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
      EXPECT_NE(agent.next_failure().text.view().find("not of 8192 bytes"), std::string_view::npos);
      agent.ask<local::Done>(local::Replace{1, 7, {{id, 1, kBytes, {}}}}, own.get());
    }
  }
  Agent agent(folder);
  EXPECT_EQ(agent.status().memory, MemoryState::kMapping);
  refusal_of(agent, local::Resume{2, 0, 0});
  agent.ask<local::Released>(local::Release{});  // though not all of it is exported
  const auto owned = local::Replace{1, 7, {{1, 1, kBytes, {}}}};
  agent.send(owned, file_with("late").get());
  EXPECT_NE(agent.next_failure().text.view().find("memory that the rank has made"), std::string_view::npos);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kArrived, .migration = 7});
  EXPECT_NE(text_of(folder + "/out.log").find("mapped: own own new 3\n"), std::string::npos);
}

TEST_F(TransparentTest, FetchEndsWithTheSet) {
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

TEST_F(TransparentTest, NothingIsReleasedThatTheKeeperDoesNotHold) {
  Agent agent(start_transparent());
  agent.wait_for_phase(Phase::kRunning);
  refusal_of(agent, local::Release{});  // not paused
  export_all(agent);
  agent.ask<local::Paused>(local::Pause{});
  agent.ask<local::Done>(local::StopExport{});
  EXPECT_NE(refusal_of(agent, local::Release{}).text.view().find("not all regions"), std::string_view::npos);
  EXPECT_EQ(status(agent).memory, MemoryState::kMapped);
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(TransparentTest, MapThatFailsLeavesTheMemoryReleased) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  EXPECT_NE(refusal_of(agent, local::Map{}).text.view().find("not all regions"), std::string_view::npos);
  EXPECT_EQ(status(agent).memory, MemoryState::kReleased);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
}

TEST_F(TransparentTest, SetsOutliveTheAgentWhileTheJobLivesFromThem) {
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

TEST_F(TransparentTest, ExportOfAnAgentThatLeavesIsDropped) {
  const std::string folder = start_transparent();
  {
    Agent agent(folder);
    agent.wait_for_phase(Phase::kRunning);
    EXPECT_EQ(export_all(agent), 3u);
    EXPECT_EQ(status(agent).exported_regions, 3u);
  }
  EXPECT_EQ(Agent(folder).status().exported_regions, 0u);
}

TEST_F(TransparentTest, DumpedRankComesBackWhenItIsCalled) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  agent.wait_for_phase(Phase::kRunning);
  export_all(agent);
  agent.ask<local::Paused>(local::Pause{});
  refusal_of(agent, local::PrepareDump{});  // its memory is there
  agent.ask<local::Released>(local::Release{});
  refusal_of(agent, local::Reattach{});
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  EXPECT_EQ(status(agent).phase, Phase::kDumped);
  EXPECT_EQ(status(agent).sessions, 0u);
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(rank) + "/fd"))
    EXPECT_EQ(fs::read_symlink(entry.path()).string().find("socket:"), std::string::npos);
  EXPECT_EQ(text_of("/proc/" + std::to_string(rank) + "/maps").find("ckpt-control"), std::string::npos);
  ::kill(rank, SIGSTOP);  // as a dump leaves it
  agent.ask<local::Done>(local::Reattach{});
  EXPECT_EQ(status(agent).phase, Phase::kPaused);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

// Its last message must not be lost with the connection: the keeper would take it for gone, and it would not
// be called back.
TEST_F(TransparentTest, RankThatLeavesWithAMessageUnreadCountsAsDumped) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  ::kill(rank, SIGSTOP);
  while (state_of(rank) != 'T') std::this_thread::yield();
  agent.send(local::PrepareDump{});
  agent.ask<local::Done>(local::StopExport{});  // it lies behind the order to leave
  ::kill(rank, SIGCONT);
  agent.next<local::DumpReady>();
  EXPECT_EQ(status(agent).phase, Phase::kDumped);
  agent.ask<local::Done>(local::Reattach{});
  EXPECT_EQ(status(agent).phase, Phase::kPaused);
}

TEST_F(TransparentTest, DumpedProcessStaysStoppedWhenALeaseComes) {
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

// A process with threads "restorer" and "program", stopped as CRIU leaves it.
class HeldTest : public TransparentTest {
 protected:
  void dump(Agent& agent) {
    pause_and_release(agent);
    rank_ = static_cast<pid_t>(status(agent).rank_pid);
    agent.ask<local::DumpReady>(local::PrepareDump{});
    ::kill(rank_, SIGSTOP);
    // Its other threads may not have stopped yet.
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

TEST_F(HeldTest, OnlyWorkersOfARestoredProcessRunBeforeItIsResumed) {
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

TEST_F(HeldTest, HoldEndsAtItsLimit) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  agent.ask<local::Done>(hold(1));
  const Nanos limit = now_ns() + kHangMs * kNanosPerMs;
  while (is_held("program") && now_ns() < limit) std::this_thread::yield();
  EXPECT_FALSE(is_held("program"));
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
}

TEST_F(HeldTest, HeldProcessEndsWithItsKeeper) {
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

TEST_F(HeldTest, LeaseThatComesBackDoesNotEndAHold) {
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

TEST_F(HeldTest, HoldWithoutItsWorkerIsRefused) {
  Agent agent(start_transparent({"threads"}));
  dump(agent);
  local::Reattach how = hold();
  how.restore_thread = static_cast<std::uint32_t>(::getpid());
  agent.send(how);
  EXPECT_EQ(agent.next_failure().code, static_cast<std::uint32_t>(ErrorCode::kNotFound));
  EXPECT_EQ(status(agent).phase, Phase::kDumped);
  agent.ask<local::Done>(local::Reattach{});
}

TEST_F(TransparentTest, MovedProcessIsKilledInsteadOfRunningOn) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  pause_and_release(agent);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  agent.ask<local::Done>(local::Moved{});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
  EXPECT_EQ(status_of(folder)["moved"], true);
}

// CRIU, as far as a killed process notices: it holds it and does not look whether it has ended.
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

TEST_F(TransparentTest, ProcessThatIsKilledWhileItIsDumpedEnds) {
  Agent agent(start_transparent());
  pause_and_release(agent);
  const auto rank = static_cast<pid_t>(status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  const DumpingTracer criu(rank);
  agent.ask<local::Done>(local::Kill{});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
}

TEST_F(TransparentTest, WithdrawnPausesLeaveARunningJob) {
  Agent agent(start_transparent());
  agent.wait_for_phase(Phase::kRunning);
  for (int i = 0; i < 50; ++i) {
    agent.send(local::Pause{});
    agent.ask<local::Running>(local::Resume{1, 0, 0});
  }
}

// The next agent decides by it whether an incarnation has run.
TEST_F(TransparentTest, RankThatDiesWhileItResumesHasRunAsTheIncarnationBefore) {
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

TEST_F(TransparentTest, TransparentRequestsAreRefusedToACooperativeRank) {
  Agent agent(start({"steps"}));
  agent.wait_for_phase(Phase::kRunning);
  agent.ask<local::Paused>(local::Pause{});
  EXPECT_NE(refusal_of(agent, local::Release{}).text.view().find("cooperative"), std::string_view::npos);
}

TEST_F(TransparentTest, KeeperDiesWhenADepositIsAnswered) {
  std::ofstream(root_ + "/keeper.j-1.fresh.505") << "kill";
  Agent agent(start_transparent());
  pause_and_release(agent);
  const Watch rank(static_cast<pid_t>(status(agent).rank_pid));
  deposit(agent, 7, "new");
  EXPECT_TRUE(rank.ended());
}

TEST_F(TransparentTest, KeeperDiesWhenTheRankHasLeftForADump) {
  std::ofstream(root_ + "/keeper.j-1.fresh.506") << "kill";
  Agent agent(start_transparent());
  pause_and_release(agent);
  const Watch rank(static_cast<pid_t>(status(agent).rank_pid));
  agent.send(local::PrepareDump{});
  EXPECT_TRUE(rank.ended());
}

// Needs root, as does the PID namespace itself.
// A rank whose context has come back, and a keeper that has to end it alone. The saver writes down which
// process it was started for.
class LastSaveTest : public TransparentTest {
 protected:
  std::string saver(const std::string& then) {
    const std::string path = root_ + "/saver";
    std::ofstream(path) << "#!/bin/sh\necho \"$1 $2 $(ps -o stat= -p $2)\" > " << root_ << "/saved\n"
                        << then << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  std::string start_restored(const std::string& then) {
    const std::string folder = root_ + "/job";
    Json config = transparent();
    config["context_program"] = saver(then);
    EXPECT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    Agent agent(folder);
    pause_and_release(agent);
    agent.ask<local::Mapped>(local::Map{MemorySet::kExported, 0});
    agent.ask<local::Running>(local::Resume{1, local::kNoDeadline, 0});
    rank_ = static_cast<pid_t>(status(agent).session_pid);
    return folder;
  }
  void end_keeper(const std::string& folder) {
    const Watch keeper(keeper_pid(folder));
    ::kill(keeper_pid(folder), SIGTERM);
    EXPECT_TRUE(keeper.ended());
  }
  [[nodiscard]] std::string saved() const { return text_of(root_ + "/saved"); }
  [[nodiscard]] std::string asked() const { return "--save " + std::to_string(rank_) + " "; }

  pid_t rank_ = 0;
};

TEST_F(LastSaveTest, RestoredRankIsKilledOnceItsContextIsSaved) {
  const std::string folder = start_restored("exit 0");
  end_keeper(folder);
  EXPECT_EQ(saved().find(asked() + "S"), 0u) << saved();
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
  EXPECT_EQ(status_of(folder)["last_save"], "its context was saved before");
}

TEST_F(LastSaveTest, RankWhoseContextCannotBeSavedIsKilledAndReported) {
  const std::string folder = start_restored("exit 1");
  end_keeper(folder);
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
  EXPECT_NE(status_of(folder)["last_save"].get<std::string>().find("was not saved before"),
            std::string::npos);
}

TEST_F(LastSaveTest, RankIsKilledWhenItsSaveTakesTooLong) {
  const std::string folder = start_restored("exec tail -f /dev/null");
  end_keeper(folder);
  EXPECT_EQ(saved().find(asked()), 0u) << saved();
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
  EXPECT_NE(status_of(folder)["last_save"].get<std::string>().find("over 5000 ms"), std::string::npos);
}

TEST_F(LastSaveTest, AnAgentThatComesMeanwhileDoesNotEndTheSave) {
  ASSERT_EQ(::mkfifo((root_ + "/go").c_str(), 0600), 0);
  const std::string folder = start_restored("cat " + root_ + "/go");
  const Watch keeper(keeper_pid(folder));
  ::kill(keeper_pid(folder), SIGTERM);
  UniqueFd go(::open((root_ + "/go").c_str(), O_WRONLY | O_CLOEXEC));  // waits for the saver
  {
    Agent agent(folder);
    agent.ask<local::Done>(local::Kill{});
    agent.send(local::Export{});
    EXPECT_NE(agent.next_failure().text.view().find("about to be killed"), std::string_view::npos);
  }
  ASSERT_EQ(::write(go.get(), "x", 1), 1);
  go.reset();
  EXPECT_TRUE(keeper.ended());
  EXPECT_EQ(status_of(folder)["last_save"], "its context was saved before");
}

TEST_F(LastSaveTest, RankWithoutALeaseIsKilledUnsaved) {
  const std::string folder = start_restored("exit 0");
  {
    Agent agent(folder);
    agent.ask<local::Done>(local::SetDeadline{1});
  }
  end_keeper(folder);
  EXPECT_EQ(saved().find("(no "), 0u) << saved();
  EXPECT_NE(status_of(folder)["last_save"].get<std::string>().find("it has no lease"), std::string::npos);
}

TEST_F(LastSaveTest, RankThatWasNeverRestoredIsNotSaved) {
  Json config = transparent();
  config["context_program"] = saver("exit 0");
  const std::string folder = root_ + "/job";
  ASSERT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
  keepers_.push_back(keeper_pid(folder));
  Agent(folder).wait_for_phase(Phase::kRunning);
  end_keeper(folder);
  EXPECT_EQ(saved().find("(no "), 0u) << saved();
  EXPECT_FALSE(status_of(folder).contains("last_save"));
}

class PidNamespaceTest : public TransparentTest {
 protected:
  // LeakSanitizer's tracer would be a child in the keeper's new namespace, from which it does not see the
  // keeper.
  PidNamespaceTest() { ::setenv("LSAN_OPTIONS", (options_ + ":detect_leaks=0").c_str(), 1); }
  ~PidNamespaceTest() override { ::setenv("LSAN_OPTIONS", options_.c_str(), 1); }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }

 private:
  const std::string options_ = std::getenv("LSAN_OPTIONS") != nullptr ? std::getenv("LSAN_OPTIONS") : "";
};

TEST_F(PidNamespaceTest, ProgramKeepsItsExitStatus) {
  Json config = this->config({"exit", "7"});
  config["init"] = INIT_PROGRAM;
  ASSERT_EQ(launch(root_ + "/a", config), 0) << text_of(root_ + "/a/said");
  EXPECT_TRUE(Watch(keeper_pid(root_ + "/a")).ended());
  EXPECT_EQ(status_of(root_ + "/a")["exit_code"], 7);
  config["argv"] = {"/bin/sh", "-c", "kill -9 $$"};
  ASSERT_EQ(launch(root_ + "/b", config), 0);
  EXPECT_TRUE(Watch(keeper_pid(root_ + "/b")).ended());
  EXPECT_EQ(status_of(root_ + "/b")["signal"], SIGKILL);
  config["argv"] = {"/no/such/program"};
  EXPECT_EQ(launch(root_ + "/c", config), 1);
  EXPECT_NE(text_of(root_ + "/c/said").find("/no/such/program"), std::string::npos);
}

TEST_F(PidNamespaceTest, RankMovesLikeAnyOther) {
  Json config = transparent();
  config["init"] = INIT_PROGRAM;
  ASSERT_EQ(launch(root_ + "/job", config), 0) << text_of(root_ + "/job/said");
  keepers_.push_back(keeper_pid(root_ + "/job"));
  Agent agent(root_ + "/job");
  pause_and_release(agent);
  EXPECT_NE(status(agent).session_pid, status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  agent.ask<local::Done>(local::Reattach{});
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  // SIGTERM would kill it with its context, so that is saved first. This rank has none.
  agent.ask<local::Done>(local::Stop{60'000});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
  EXPECT_TRUE(status_of(root_ + "/job").contains("last_save"));
}

}  // namespace
}  // namespace ckpt::keeper
