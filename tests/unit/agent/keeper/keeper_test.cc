// SPDX-License-Identifier: Apache-2.0
// Tests of the keeper as a process, with programs that need no GPU.
#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {
namespace {

TEST_F(KeeperTest, ExitStatusIsReportedAndStored) {
  const std::string folder = start({"exit", "7"});
  EXPECT_TRUE(Watch(keepers_.back()).ended()) << "without an agent the keeper ends with its program";
  const Json status = status_of(folder);
  EXPECT_EQ(status["exit_code"], 7);
  EXPECT_EQ(status["ended_by_keeper"], false);
  EXPECT_EQ(status["job"], "j-1");
  EXPECT_FALSE(fs::exists(folder + "/keeper.sock"));
}

TEST_F(KeeperTest, ProgramStartsWithCleanDescriptorsAndEnvironment) {
  const std::string folder = start({"descriptors"});
  EXPECT_TRUE(Watch(keepers_.back()).ended());
  const std::string log = folder + "/out.log";
  EXPECT_EQ(text_of(log), "fd 0 /dev/null\nfd 1 " + log + "\nfd 2 " + log + "\nsocket " + folder +
                              "/keeper.sock\nhome clean\ngiven yes\ncwd " + root_ + "\n");
}

TEST_F(KeeperTest, StatusContainsTheProcessIds) {
  Agent agent(start({"wait"}));
  EXPECT_EQ(agent.status().job.view(), "j-1");
  EXPECT_EQ(agent.status().phase, Phase::kStarting);
  EXPECT_EQ(agent.status().keeper_pid, static_cast<std::uint32_t>(keepers_.back()));
  EXPECT_EQ(agent.status().rank_start_ticks, start_ticks_of(static_cast<pid_t>(agent.status().rank_pid)));
  EXPECT_NE(agent.status().rank_start_ticks, 0u);
}

TEST_F(KeeperTest, StopTerminatesAndShutdownEndsTheKeeper) {
  const std::string folder = start({"wait"});
  Agent agent(folder);
  agent.send(local::Shutdown{});
  EXPECT_EQ(agent.socket().receive()->message.body.index(), local::Body(local::Failed{}).index())
      << "not while the program lives";
  agent.ask<local::Done>(local::Stop{60'000});
  const auto exited = agent.next<local::RankExited>();
  EXPECT_EQ(WTERMSIG(exited.wait_status), SIGTERM);
  EXPECT_EQ(exited.ended_by_keeper, 1u);
  EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).phase, Phase::kExited)
      << "the keeper stays for its agent";
  EXPECT_EQ(status_of(folder)["signal"], SIGTERM);
  agent.ask<local::Done>(local::Shutdown{});
  EXPECT_TRUE(Watch(keepers_.back()).ended());
}

TEST_F(KeeperTest, ProgramThatIgnoresSigtermIsKilledAfterTheGracePeriod) {
  Agent agent(start({"stubborn"}));
  agent.ask<local::Done>(local::Stop{1});
  const int status = agent.next<local::RankExited>().wait_status;
  // If the program does not ignore SIGTERM yet, SIGTERM ends it.
  EXPECT_TRUE(WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
}

TEST_F(KeeperTest, DeadlineStopsTheRankAndALaterDeadlineContinuesTheRank) {
  Agent agent(start({"wait"}));
  const pid_t rank = static_cast<pid_t>(agent.status().rank_pid);
  agent.send(local::SetDeadline{now_ns() + 1'000'000});
  agent.next<local::RankStopped>();  // the message arrives before the answer or after it
  EXPECT_EQ(state_of(rank), 'T');
  EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).stopped, 1u);

  // A SIGCONT from another process does not restore the lease. The keeper stops the rank again.
  ::kill(rank, SIGCONT);
  agent.next<local::RankStopped>();
  EXPECT_EQ(state_of(rank), 'T');

  agent.send(local::SetDeadline{local::kNoDeadline});
  agent.next<local::RankContinued>();
  agent.next<local::Done>();
  EXPECT_NE(state_of(rank), 'T');
  EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).stopped, 0u);
}

// A lease also applies to processes that have left the process group. Processes that the program had stopped
// itself stay stopped.
TEST_F(KeeperTest, DeadlineStopsTheProcessTreeAndALaterDeadlineContinuesTheTree) {
  const std::string folder = start({"children"});
  Agent agent(folder);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kHangMs);
  int stopped = 0;
  int apart = 0;
  while (std::sscanf(text_of(folder + "/out.log").c_str(), "children %d %d", &stopped, &apart) != 2) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "the program did not start its children";
    std::this_thread::yield();
  }
  ASSERT_EQ(state_of(stopped), 'T');
  agent.send(local::SetDeadline{now_ns() + 1'000'000});
  agent.next<local::RankStopped>();
  EXPECT_EQ(state_of(apart), 'T');
  agent.send(local::SetDeadline{local::kNoDeadline});
  agent.next<local::RankContinued>();
  agent.next<local::Done>();
  EXPECT_NE(state_of(apart), 'T');
  EXPECT_EQ(state_of(stopped), 'T') << "the program had stopped it itself";
}

TEST_F(KeeperTest, DeadlineAppliesWithoutAnAgent) {
  const std::string folder = start({"wait"});
  {
    Agent agent(folder);
    agent.ask<local::Done>(local::SetDeadline{now_ns() + 1'000'000});
  }
  Agent later(folder);
  if (later.status().stopped == 0) later.next<local::RankStopped>();
  EXPECT_EQ(state_of(static_cast<pid_t>(later.status().rank_pid)), 'T');
}

TEST_F(KeeperTest, RankWithoutALeaseIsKilledInsteadOfTerminated) {
  Agent agent(start({"wait"}));
  agent.ask<local::Done>(local::SetDeadline{1});
  agent.next<local::RankStopped>();
  agent.ask<local::Done>(local::Stop{60'000});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
}

TEST_F(KeeperTest, KillingTheKeeperKillsTheRank) {
  Agent agent(start({"stubborn"}));
  const Watch rank(static_cast<pid_t>(agent.status().rank_pid));
  ::kill(keepers_.back(), SIGKILL);
  EXPECT_TRUE(rank.ended());
}

TEST_F(KeeperTest, SecondAgentReplacesTheFirst) {
  const std::string folder = start({"wait"});
  Agent first(folder);
  Agent second(folder);
  ASSERT_TRUE(wait_readable(first.socket().fd()));
  EXPECT_EQ(first.socket().receive()->transfer, local::Transfer::kClosed);
  second.ask<local::Done>(local::Kill{});
  second.next<local::RankExited>();
}

TEST_F(KeeperTest, MalformedMessageEndsOnlyItsConnection) {
  const std::string folder = start({"wait"});
  local::Socket stranger = std::move(*local::Socket::connect(folder + "/keeper.sock"));
  ASSERT_TRUE(stranger.send_bytes(std::vector<std::byte>(50, std::byte{0x5a})).has_value());
  ASSERT_TRUE(wait_readable(stranger.fd()));
  EXPECT_EQ(stranger.receive()->transfer, local::Transfer::kClosed);
  Agent agent(folder);
  ASSERT_TRUE(agent.socket().send_bytes(std::vector<std::byte>(50, std::byte{0x5a})).has_value());
  EXPECT_EQ(Agent(folder).status().phase, Phase::kStarting);
}

TEST_F(KeeperTest, ProcessOutsideTheJobGetsNoSession) {
  const std::string folder = start({"wait"});
  local::Socket stranger = std::move(*local::Socket::connect(folder + "/keeper.sock"));
  ASSERT_TRUE(stranger.send({0, 0, local::Hello{static_cast<std::uint32_t>(::getpid()), 1}}).has_value());
  ASSERT_TRUE(wait_readable(stranger.fd()));
  EXPECT_TRUE(std::holds_alternative<local::Failed>(stranger.receive()->message.body));
}

TEST_F(KeeperTest, ProgramWithoutASessionRefusesRequestsWithAReason) {
  Agent agent(start({"wait"}));
  EXPECT_NE(refusal_of(agent, local::Describe{}).text.view().find("ckpt_init"), std::string_view::npos);
  EXPECT_NE(refusal_of(agent, local::Export{}).text.view().find("ckpt_init"), std::string_view::npos);
  EXPECT_NE(refusal_of(agent, local::Pause{}).text.view().find("ckpt_ready"), std::string_view::npos);
  refusal_of(agent, local::Moved{});
  refusal_of(agent, local::Resume{2, 0, 0});
}

TEST_F(KeeperTest, PauseSurvivesAnAgentChangeAndEndsWithResume) {
  const std::string folder = start({"steps"});
  std::uint64_t quiesced = 0;
  {
    Agent agent(folder);
    agent.wait_for_phase(Phase::kRunning);
    const auto paused = agent.ask<local::Paused>(local::Pause{});
    EXPECT_LE(paused.barrier_entry_ns, paused.quiesced_ns);
    EXPECT_GT(paused.host_state_bytes, 24u);
    EXPECT_TRUE(agent.take_descriptor());
    quiesced = static_cast<std::uint64_t>(paused.quiesced_ns);
  }
  Agent agent(folder);
  EXPECT_EQ(agent.status().phase, Phase::kPaused);
  EXPECT_EQ(agent.status().quiesced_ns, static_cast<Nanos>(quiesced));
  refusal_of(agent, local::Pause{});
  const auto running = agent.ask<local::Running>(local::Resume{3, 0, 0});
  EXPECT_EQ(running.was_paused, 1u);
  EXPECT_EQ(running.incarnation, 3u);
  EXPECT_GE(running.resumed_ns, static_cast<Nanos>(quiesced));
  agent.ask<local::Paused>(local::Pause{});
  EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).incarnation, 3u);
}

// GANG-1: a count below `stop_at` is a promise; a count beyond `stop_at` needs a raise.
TEST_F(KeeperTest, GangRankStopsAtTheAgreedBarrier) {
  Json gang = config({"steps"});
  gang["gang"] = true;
  Agent agent(start_with(gang));
  agent.wait_for_phase(Phase::kRunning);
  const auto first = agent.ask<local::Counted>(local::StopAt{7, 1});
  EXPECT_EQ(first.stop_at, 1u);
  const std::uint64_t agreed = first.barriers + 3;
  const auto raised = agent.ask<local::Counted>(local::StopAt{7, agreed});
  EXPECT_EQ(raised.stop_at, agreed);
  EXPECT_LT(raised.barriers, agreed);
  EXPECT_EQ(agent.ask<local::Counted>(local::StopAt{7, 2}).stop_at, agreed) << "it is never lowered";
  EXPECT_NE(refusal_of(agent, local::Pause{}).text.view().find("barrier"), std::string_view::npos);
  const auto paused = agent.ask<local::Paused>(local::Pause{agreed});
  EXPECT_EQ(paused.barrier, agreed);
  agent.ask<local::Running>(local::Resume{1, 0, 0});
  refusal_of(agent, local::StopAt{7, agreed + 100});
  refusal_of(agent, local::StopAt{6, agreed + 100});
  EXPECT_GT(agent.ask<local::Paused>(local::Pause{}).barrier, agreed) << "it went on";
}

TEST_F(KeeperTest, GangRankContinuesAfterAnAbandonedAttempt) {
  Json gang = config({"steps"});
  gang["gang"] = true;
  const std::string folder = start_with(gang);
  {
    Agent agent(folder);
    agent.wait_for_phase(Phase::kRunning);
    agent.ask<local::Counted>(local::StopAt{7, 1});
    EXPECT_EQ(agent.ask<local::Counted>(local::StopAt{7, 0}).stop_at, 0u);
    refusal_of(agent, local::StopAt{7, 1});
    agent.ask<local::Counted>(local::StopAt{8, 1});
  }
  Agent later(folder);  // the exit of the previous agent canceled its barrier
  const std::uint64_t barrier = later.ask<local::Paused>(local::Pause{}).barrier;
  later.ask<local::Running>(local::Resume{1, 0, 0});
  EXPECT_GT(later.ask<local::Paused>(local::Pause{}).barrier, barrier);
}

TEST_F(KeeperTest, OnlyGangRanksCountBarriers) {
  Agent agent(start({"steps"}));
  agent.wait_for_phase(Phase::kRunning);
  EXPECT_NE(refusal_of(agent, local::StopAt{7, 1}).text.view().find("several ranks"), std::string_view::npos);
  EXPECT_EQ(agent.ask<local::Paused>(local::Pause{}).barrier, 0u);
}

TEST_F(KeeperTest, PauseWithoutABarrierIsWithdrawn) {
  const std::string folder = start({"no-barrier"});
  {
    Agent agent(folder);
    agent.wait_for_phase(Phase::kRunning);
    agent.send(local::Pause{});
    EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).phase, Phase::kPausing);
    EXPECT_EQ(agent.ask<local::Running>(local::Resume{1, 0, 0}).was_paused, 0u);
    agent.send(local::Pause{});
    EXPECT_EQ(agent.ask<local::Status>(local::Attach{}).phase, Phase::kPausing);
  }
  EXPECT_EQ(Agent(folder).status().phase, Phase::kRunning)
      << "an agent that leaves takes its pending pause along";
}

TEST_F(KeeperTest, JobRunsAfterPausesAndWithdrawalsInAnyOrder) {
  Agent agent(start({"steps"}));
  agent.wait_for_phase(Phase::kRunning);
  for (int i = 0; i < 50; ++i) {
    agent.send(local::Pause{});
    agent.ask<local::Running>(local::Resume{1, 0, 0});
  }
  agent.ask<local::Paused>(local::Pause{});
  agent.ask<local::Running>(local::Resume{1, 0, 0});
}

TEST_F(KeeperTest, JobMovesBetweenTwoKeepers) {
  const std::string from = start({"steps"}, "fresh", "from");
  const std::string to = start({"steps"}, "standby", "to");
  Agent source(from);
  Agent target(to);
  source.wait_for_phase(Phase::kRunning);
  target.wait_for_phase(Phase::kStandbyReady);
  EXPECT_EQ(source.ask<local::DescribeEnd>(local::Describe{}).summary.host_state_bytes, 24u);

  const auto paused = source.ask<local::Paused>(local::Pause{});
  const UniqueFd state = source.take_descriptor();
  target.ask<local::Running>(local::Resume{2, now_ns() + 3600ll * 1'000'000'000, paused.host_state_bytes},
                             state.get());
  source.ask<local::Done>(local::Moved{});
  EXPECT_EQ(source.next<local::RankExited>().ended_by_keeper, 1u);
  EXPECT_EQ(status_of(from)["moved"], true);

  target.ask<local::Paused>(local::Pause{});
  const std::string log = text_of(to + "/out.log");
  EXPECT_EQ(log.substr(0, 11), "resumed at ");
  EXPECT_GT(std::atoi(log.c_str() + 11), 0) << "the step number came along";
  EXPECT_EQ(target.ask<local::Status>(local::Attach{}).incarnation, 2u);
}

// In a rank of a gang, the program does no step until the gate opens, whatever messages arrive.
TEST_F(KeeperTest, StandbyLoadsItsStateAndWaitsBehindItsGate) {
  Json gang = config({"steps"});
  gang["gang"] = true;
  Json standby = config({"steps"}, "standby");
  standby["gang"] = true;
  const std::string to = root_ + "/to";
  Agent source(start_with(gang));
  ASSERT_EQ(launch(to, standby), 0);
  keepers_.push_back(keeper_pid(to));
  source.wait_for_phase(Phase::kRunning);
  const auto first = source.ask<local::Counted>(local::StopAt{7, 1});
  const std::uint64_t agreed = first.barriers + 3;
  source.ask<local::Counted>(local::StopAt{7, agreed});
  const auto paused = source.ask<local::Paused>(local::Pause{agreed});
  const UniqueFd state = source.take_descriptor();
  local::Resume enter{2, 0, paused.host_state_bytes};
  enter.into_gate = 1;
  {
    Agent target(to);
    target.wait_for_phase(Phase::kStandbyReady);
    EXPECT_EQ(target.ask<local::InGate>(enter, state.get()).incarnation, 2u);
  }
  Agent target(to);  // the next agent repeats the request, without the state
  EXPECT_EQ(target.status().phase, Phase::kResuming);
  local::Resume again{2, 0, 0};
  again.into_gate = 1;
  target.ask<local::InGate>(again);
  EXPECT_EQ(text_of(to + "/out.log").find("resumed at "), std::string::npos) << "no step of the program's";
  EXPECT_EQ(target.ask<local::Running>(local::Resume{2, 0, 0}).incarnation, 2u);
  target.ask<local::InGate>(again);
  const auto later = target.ask<local::Paused>(local::Pause{});
  EXPECT_GT(later.barrier, agreed) << "barriers are counted on";
}

TEST_F(KeeperTest, OnlyAStandbyEntersAGate) {
  Agent agent(start({"wait"}));
  local::Resume enter{2, 0, 0};
  enter.into_gate = 1;
  EXPECT_NE(refusal_of(agent, enter).text.view().find("gate"), std::string_view::npos);
}

// Tests of crash points 501 to 504.
class CrashTest : public KeeperTest {
 protected:
  void arm(const std::string& name) { std::ofstream(root_ + "/" + name) << "kill"; }
  CrashTest() {
    ::setenv("CKPT_FAULT_DIR", root_.c_str(), 1);
  }  // the keeper inherits the variable; the rank receives the variable from `env`
  ~CrashTest() override { ::unsetenv("CKPT_FAULT_DIR"); }

  // Sends Resume with the state of a source to the standby of `folder`.
  void resume_standby(Agent& target) {
    Agent source(start({"steps"}, "fresh", "from"));
    source.wait_for_phase(Phase::kRunning);
    const auto paused = source.ask<local::Paused>(local::Pause{});
    const UniqueFd state = source.take_descriptor();
    target.send(local::Resume{2, 0, paused.host_state_bytes}, state.get());
  }
};

TEST_F(CrashTest, CrashPointAfterTheStandbyStartKillsTheKeeper) {
  arm("keeper.j-1.standby.501");
  EXPECT_EQ(launch(root_ + "/to", config({"wait"}, "standby")), 1);
  EXPECT_FALSE(fs::exists(root_ + "/keeper.j-1.standby.501"));
}

TEST_F(CrashTest, KeeperCrashWithAnOpenGateKillsTheRank) {
  Agent target(start({"steps"}, "standby", "to"));
  target.wait_for_phase(Phase::kStandbyReady);
  const Watch rank(static_cast<pid_t>(target.status().rank_pid));
  arm("keeper.j-1.standby.502");
  resume_standby(target);
  EXPECT_TRUE(rank.ended());
}

TEST_F(CrashTest, CrashOfAReadyStandbyIsReported) {
  arm("rank.j-1.standby.503");
  const std::string folder = start({"steps"}, "standby", "to");
  EXPECT_TRUE(Watch(keepers_.back()).ended());
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
}

TEST_F(CrashTest, RankCrashAfterResumeIsReported) {
  arm("rank.j-1.standby.504");
  Agent target(start({"steps"}, "standby", "to"));
  target.wait_for_phase(Phase::kStandbyReady);
  resume_standby(target);
  target.next<local::Running>();
  EXPECT_EQ(WTERMSIG(target.next<local::RankExited>().wait_status), SIGKILL);
}

TEST_F(KeeperTest, StandbyWithDifferentStateReportsTheDifference) {
  Agent source(start({"steps"}, "fresh", "from"));
  Agent target(start({"steps-other"}, "standby", "to"));
  source.wait_for_phase(Phase::kRunning);
  target.wait_for_phase(Phase::kStandbyReady);
  const auto paused = source.ask<local::Paused>(local::Pause{});
  const UniqueFd state = source.take_descriptor();
  target.send(local::Resume{2, 0, paused.host_state_bytes}, state.get());
  ASSERT_TRUE(wait_readable(target.socket().fd()));
  const Result<local::Received> received = target.socket().receive();
  ASSERT_TRUE(received.has_value());
  const auto* failed = std::get_if<local::Failed>(&received->message.body);
  ASSERT_NE(failed, nullptr);
  EXPECT_NE(failed->text.view().find("'state'"), std::string_view::npos) << failed->text.view();
  source.ask<local::Running>(local::Resume{1, 0, 0});
}

TEST_F(KeeperTest, StandbyWithDifferentStateIsKilledEvenIfItsProgramContinues) {
  Agent source(start({"steps"}, "fresh", "from"));
  Agent target(start({"steps-other-keeps-on"}, "standby", "to"));
  source.wait_for_phase(Phase::kRunning);
  target.wait_for_phase(Phase::kStandbyReady);
  const auto paused = source.ask<local::Paused>(local::Pause{});
  const UniqueFd state = source.take_descriptor();
  target.send(local::Resume{2, 0, paused.host_state_bytes}, state.get());
  EXPECT_NE(target.next_failure().text.view().find("'state'"), std::string_view::npos);
  const auto exited = target.next<local::RankExited>();
  EXPECT_EQ(exited.wait_status, SIGKILL);
  EXPECT_EQ(exited.ended_by_keeper, 0u);
  source.ask<local::Running>(local::Resume{1, 0, 0});
}

TEST_F(KeeperTest, PauseOfAnEndedSessionIsRefused) {
  Agent agent(start({"session-end"}));
  EXPECT_NE(refusal_of(agent, local::Pause{}).text.view().find("ended its session"), std::string_view::npos);
}

TEST_F(KeeperTest, SecondKeeperInTheSameFolderIsRefused) {
  const std::string folder = start({"wait"});
  EXPECT_EQ(launch(folder, config({"wait"})), 1);
  EXPECT_NE(text_of(folder + "/said").find("Another keeper uses"), std::string::npos);
  EXPECT_EQ(Agent(folder).status().phase, Phase::kStarting);
}

TEST_F(KeeperTest, ProgramThatCannotStartIsReported) {
  Json missing = config({});
  missing["argv"] = {"/no/such/program"};
  EXPECT_EQ(launch(root_ + "/a", missing), 1);
  EXPECT_NE(text_of(root_ + "/a/said").find("/no/such/program"), std::string::npos);
  EXPECT_EQ(status_of(root_ + "/a")["state"], "failed");
  EXPECT_EQ(status_of(root_ + "/a")["program_status"], 127);
  EXPECT_EQ(status_of(root_ + "/a")["error"], "/no/such/program: not found");
  Json nowhere = config({"wait"});
  nowhere["cwd"] = "/no/such/folder";
  EXPECT_EQ(launch(root_ + "/b", nowhere), 1);
  EXPECT_NE(text_of(root_ + "/b/said").find("/no/such/folder"), std::string::npos);
  EXPECT_FALSE(status_of(root_ + "/b").contains("program_status"));
  EXPECT_EQ(launch(root_ + "/c", Json::object()), 1);
  EXPECT_EQ(run({KEEPER_PROGRAM}, "/dev/null"), 64);
}

}  // namespace
}  // namespace ckpt::keeper
