// SPDX-License-Identifier: Apache-2.0
// Tests that a job is everything that descends from its first process, in whatever session or process group.
// The whole job gets one session; signals, leases and ends apply to all of it.
#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/unit/agent/keeper/transparent_fixture.h"

namespace ckpt::keeper {
namespace {

using Words = std::vector<std::string>;

struct Wrapper {
  const char* name;
  Words words;  // the words before the program
};

const std::vector<Wrapper> kWrappers = {
    {"setsid", {"/usr/bin/setsid", "--wait"}},
    {"timeout", {"/usr/bin/timeout", "1h"}},
    {"nohup_setsid", {"/usr/bin/nohup", "/usr/bin/setsid", "--wait"}},
    {"job_control", {"/bin/bash", "-c", "set -m; \"$0\" \"$@\" & wait"}},
    {"orphan", {"/bin/bash", "-c", "(setsid \"$0\" \"$@\" &); exec sleep 100000"}},
    {"start_new_session",
     {"/usr/bin/python3", "-c",
      "import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session=True)"}},
    {"pseudo_terminal", {"/usr/bin/python3", "-c", "import pty, sys; pty.spawn(sys.argv[1:])"}},
    {"nested", {"/usr/bin/timeout", "1h", "/usr/bin/setsid", "--wait", "/usr/bin/timeout", "1h"}},
};

void until(const char* what, const std::function<bool()>& is_so) {
  const Nanos limit = now_ns() + kHangMs * kNanosPerMs;
  while (!is_so()) {
    ASSERT_LT(now_ns(), limit) << "waited in vain until " << what;
    std::this_thread::yield();
  }
}

class WholeJobTest : public TransparentTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && ::geteuid() != 0) GTEST_SKIP() << "a PID namespace needs root";
  }
  std::string start_wrapped(const Words& before, const Words& program,
                            const std::string& mode = "transparent") {
    Json config = this->config({});
    Words argv = before;
    argv.insert(argv.end(), program.begin(), program.end());
    config["argv"] = argv;
    config["way"] = mode;
    if (GetParam()) config["init"] = INIT_PROGRAM;
    const std::string folder = root_ + "/job" + std::to_string(++jobs_);
    EXPECT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  // Returns the id of the job's process that has a name unique to this test. The program sets its name with
  // `exec -a`.
  pid_t named(const std::string& word) {
    pid_t found = 0;
    until(("there is a process " + word).c_str(), [&] {
      for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string number = entry.path().filename().string();
        if (number.find_first_not_of("0123456789") != std::string::npos) continue;
        if (text_of("/proc/" + number + "/cmdline").starts_with(word)) found = std::atoi(number.c_str());
      }
      return found != 0;
    });
    return found;
  }
  [[nodiscard]] std::string unique(const std::string& word) const {
    return word + "-" + fs::path(root_).filename().string();
  }

  int jobs_ = 0;
};

TEST_P(WholeJobTest, EachProcessOfTheJobGetsASessionUnderAnyWrapper) {
  for (const Wrapper& wrapper : kWrappers) {
    SCOPED_TRACE(wrapper.name);
    const std::string folder = start_wrapped(wrapper.words, {FAKE_RANK});
    Agent agent(folder);
    agent.wait_for_phase(Phase::kRunning);
    const auto session = static_cast<pid_t>(status(agent).session_pid);
    // These are all requests that a move sends to the rank, including its reattachment.
    pause_and_release(agent);
    agent.ask<local::DumpReady>(local::PrepareDump{});
    agent.ask<local::Done>(local::Reattach{});
    agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
    agent.ask<local::Running>(local::Resume{2, 0, 0});
    const Watch rank(session);
    agent.ask<local::Done>(local::Kill{});
    agent.next<local::RankExited>();
    EXPECT_TRUE(rank.ended());
  }
}

TEST_P(WholeJobTest, LeaseExpiryStopsJobProcessesInOtherUnixSessions) {
  const std::string other = unique("other");
  const std::string paused = unique("paused");
  Agent agent(
      start_wrapped({}, {"/bin/bash", "-c",
                         "setsid bash -c 'exec -a " + other + " sleep 100000' & setsid bash -c 'exec -a " +
                             paused + " sleep 100000' & wait"}));
  const pid_t running = named(other);
  const pid_t stopped = named(paused);
  ::kill(stopped, SIGSTOP);
  until("the program has stopped one of its processes", [&] { return state_of(stopped) == 'T'; });
  agent.send(local::SetDeadline{1});
  agent.next<local::RankStopped>();
  EXPECT_EQ(state_of(running), 'T');
  ::kill(running, SIGCONT);  // a SIGCONT from another process
  until("it is stopped again", [&] { return state_of(running) == 'T'; });
  agent.send(local::SetDeadline{local::kNoDeadline});
  agent.next<local::RankContinued>();
  until("it goes on", [&] { return state_of(running) != 'T'; });
  EXPECT_EQ(state_of(stopped), 'T') << "the program had stopped it itself";
}

// The first process exits at once. The other process has work to do before it exits.
TEST_P(WholeJobTest, StopGivesEachProcessItsGracePeriod) {
  const std::string script =
      "trap 'echo saved > saved; exit 0' TERM; echo ready > ready; while :; do sleep 0.01; done";
  const std::string folder = start_wrapped({}, {"/bin/bash", "-c", "setsid bash -c \"$0\" & wait", script});
  until("the other process is ready", [&] { return text_of(root_ + "/ready") == "ready\n"; });
  Agent agent(folder);
  agent.ask<local::Done>(local::Stop{60'000});
  EXPECT_EQ(agent.next<local::RankExited>().wait_status, SIGTERM) << "how the first process ended";
  EXPECT_EQ(text_of(root_ + "/saved"), "saved\n");
}

TEST_P(WholeJobTest, ProcessInAnotherUnixSessionIsKilledIfItIgnoresSigterm) {
  const std::string stubborn = unique("stubborn");
  const std::string folder =
      start_wrapped({}, {"/bin/bash", "-c",
                         "trap 'exit 3' TERM; setsid bash -c \"trap '' TERM; exec -a " + stubborn +
                             " sleep 100000\" & while :; do sleep 0.01; done"});
  const Watch other(named(stubborn));
  Agent agent(folder);
  agent.ask<local::Done>(local::Stop{1});
  const int status = agent.next<local::RankExited>().wait_status;
  // The grace period may be over before the first process has run.
  EXPECT_TRUE(status == 3 << 8 || status == SIGKILL) << status;
  EXPECT_TRUE(other.ended());
}

TEST_P(WholeJobTest, ProcessesInOtherUnixSessionsEndWithTheProgram) {
  const std::string left = unique("left");
  const std::string folder =
      start_wrapped({}, {"/bin/bash", "-c",
                         "(setsid bash -c 'exec -a " + left +
                             " sleep 100000' &); while [ ! -e go ]; do sleep 0.01; done; exit 5"});
  const Watch other(named(left));
  std::ofstream(root_ + "/go") << "";
  EXPECT_TRUE(other.ended());
  EXPECT_TRUE(Watch(keepers_.back()).ended());
  EXPECT_EQ(status_of(folder)["exit_code"], 5);
}

INSTANTIATE_TEST_SUITE_P(Jobs, WholeJobTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "InItsNamespace" : "WithoutNamespace"; });

}  // namespace
}  // namespace ckpt::keeper
