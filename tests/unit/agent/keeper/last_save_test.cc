// SPDX-License-Identifier: Apache-2.0
// Tests of ranks that a keeper has to end without an agent, and of ranks in PID namespaces of their own.

#include "tests/unit/agent/keeper/transparent_fixture.h"

namespace ckpt::keeper {
namespace {

// Tests with a rank whose context is restored, and a keeper that has to end the rank alone. The saver records
// the process that it was started for.
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

TEST_F(LastSaveTest, RestoredRankIsKilledAfterItsContextIsSaved) {
  const std::string folder = start_restored("exit 0");
  end_keeper(folder);
  EXPECT_EQ(saved().find(asked() + "S"), 0u) << saved();
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
  EXPECT_EQ(status_of(folder)["last_save"], "its context was saved before the kill");
}

TEST_F(LastSaveTest, RankWithAFailedContextSaveIsKilledAndReported) {
  const std::string folder = start_restored("exit 1");
  end_keeper(folder);
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
  EXPECT_NE(status_of(folder)["last_save"].get<std::string>().find("was not saved before"),
            std::string::npos);
}

TEST_F(LastSaveTest, RankIsKilledIfItsSaveTimesOut) {
  const std::string folder = start_restored("exec tail -f /dev/null");
  end_keeper(folder);
  EXPECT_EQ(saved().find(asked()), 0u) << saved();
  EXPECT_EQ(status_of(folder)["signal"], SIGKILL);
  EXPECT_NE(status_of(folder)["last_save"].get<std::string>().find("more than 5000 ms"), std::string::npos);
}

TEST_F(LastSaveTest, AnAgentThatConnectsDuringTheSaveDoesNotEndTheSave) {
  ASSERT_EQ(::mkfifo((root_ + "/go").c_str(), 0600), 0);
  const std::string folder = start_restored("cat " + root_ + "/go");
  const Watch keeper(keeper_pid(folder));
  ::kill(keeper_pid(folder), SIGTERM);
  UniqueFd go(::open((root_ + "/go").c_str(), O_WRONLY | O_CLOEXEC));  // the saver waits for this open
  {
    Agent agent(folder);
    agent.ask<local::Done>(local::Kill{});
    agent.send(local::Export{});
    EXPECT_NE(agent.next_failure().text.view().find("about to be killed"), std::string_view::npos);
  }
  ASSERT_EQ(::write(go.get(), "x", 1), 1);
  go.reset();
  EXPECT_TRUE(keeper.ended());
  EXPECT_EQ(status_of(folder)["last_save"], "its context was saved before the kill");
}

TEST_F(LastSaveTest, RankWithoutALeaseIsKilledWithoutASave) {
  const std::string folder = start_restored("exit 0");
  {
    Agent agent(folder);
    agent.ask<local::Done>(local::SetDeadline{1});
  }
  end_keeper(folder);
  EXPECT_EQ(saved().find("(no "), 0u) << saved();
  EXPECT_NE(status_of(folder)["last_save"].get<std::string>().find("the job has no lease"),
            std::string::npos);
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

// Tests with a PID namespace. They need root, as the PID namespace does.
class PidNamespaceTest : public TransparentTest {
 protected:
  // Disables leak detection. LeakSanitizer's tracer would be a child in the keeper's new namespace, from
  // which the tracer cannot see the keeper.
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

TEST_F(PidNamespaceTest, RankInAPidNamespaceCanBeMoved) {
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
  // SIGTERM would kill the rank with its context, so the context is saved first. This rank has no context.
  agent.ask<local::Done>(local::Stop{60'000});
  EXPECT_EQ(WTERMSIG(agent.next<local::RankExited>().wait_status), SIGKILL);
  EXPECT_TRUE(status_of(root_ + "/job").contains("last_save"));
}

}  // namespace
}  // namespace ckpt::keeper
