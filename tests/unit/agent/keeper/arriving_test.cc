// SPDX-License-Identifier: Apache-2.0
// Tests of a restored program whose memory arrives later. CRIU and the process that transfers the memory are
// shell scripts.

#include <sys/stat.h>

#include "tests/unit/agent/keeper/transparent_fixture.h"

namespace ckpt::keeper {
namespace {

class ArrivingTest : public TransparentTest {
 protected:
  // Starts a restored job whose page server ends with `status` once something opens root_/whole.
  std::string start_restored(int status) {
    const std::string folder = root_ + "/job";
    EXPECT_EQ(::mkfifo((root_ + "/whole").c_str(), 0600), 0);
    Json config = transparent();
    config["restore"] = {{"command", shell("setsid tail -f /dev/null & echo $! > " + root_ + "/restored")},
                         {"pid_file", root_ + "/restored"}};
    const std::string server =
        "(read x < " + root_ + "/whole; exit " + std::to_string(status) + ") & echo $! > ";
    config["restore"]["lazy_pages"] = {{"command", shell(server + root_ + "/server")},
                                       {"pid_file", root_ + "/server"}};
    EXPECT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  static std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }
  void end_server() { const UniqueFd file(::open((root_ + "/whole").c_str(), O_WRONLY | O_CLOEXEC)); }
  // Sends AwaitMemory. The keeper has taken the request once it refuses the next one.
  static void begin_to_wait(Agent& agent) {
    agent.send(local::AwaitMemory{});
    agent.send(local::PrepareDump{});
    EXPECT_NE(agent.next_failure().text.view().find("still arriving"), std::string_view::npos);
  }
  [[nodiscard]] pid_t pid_in(const std::string& name) const {
    return std::atoi(text_of(root_ + "/" + name).c_str());
  }
};

TEST_F(ArrivingTest, ProgramIsNotDumpedBeforeItsMemoryIsComplete) {
  const std::string folder = start_restored(0);
  Agent agent(folder);
  agent.send(local::PrepareDump{});
  EXPECT_NE(agent.next_failure().text.view().find("still arriving"), std::string_view::npos);
  const std::uint64_t request = agent.send(local::AwaitMemory{});
  end_server();
  agent.next<local::Done>();
  EXPECT_GT(request, 0u);
  agent.ask<local::Done>(local::AwaitMemory{});
  agent.send(local::PrepareDump{});
  EXPECT_EQ(agent.next_failure().text.view().find("still arriving"), std::string_view::npos);
}

TEST_F(ArrivingTest, EachRequestIsAnsweredOnceAllMemoryHasArrived) {
  const std::string folder = start_restored(0);
  Agent agent(folder);
  agent.send(local::AwaitMemory{});
  agent.send(local::AwaitMemory{});
  end_server();
  agent.next<local::Done>();
  agent.next<local::Done>();
}

TEST_F(ArrivingTest, LaterAgentMayAlsoWaitForMemory) {
  const std::string folder = start_restored(0);
  { Agent(folder).send(local::AwaitMemory{}); }
  Agent agent(folder);
  agent.send(local::AwaitMemory{});
  end_server();
  agent.next<local::Done>();
}

TEST_F(ArrivingTest, ProgramIsKilledIfTheLazyPageServerFails) {
  const std::string folder = start_restored(1);
  const Watch program(pid_in("restored"));
  Agent agent(folder);
  begin_to_wait(agent);
  end_server();
  const std::string reason(agent.next_failure().text.view());
  EXPECT_NE(reason.find("was lost"), std::string::npos) << reason;
  EXPECT_NE(reason.find("exit code 1"), std::string::npos) << reason;
  EXPECT_TRUE(program.ended());
  agent.next<local::RankExited>();
  const Json report = Json::parse(text_of(folder + "/status.json"));
  EXPECT_NE(report["loss"].get<std::string>().find("exit code 1"), std::string::npos) << report;
  agent.send(local::AwaitMemory{});
  EXPECT_NE(agent.next_failure().text.view().find("was lost"), std::string_view::npos);
}

TEST_F(ArrivingTest, ExitOfTheProgramIsNotReportedAsArrivedMemory) {
  const std::string folder = start_restored(0);
  Agent agent(folder);
  begin_to_wait(agent);
  ::kill(pid_in("restored"), SIGKILL);
  EXPECT_NE(agent.next_failure().text.view().find("before all of its host memory"), std::string_view::npos);
  agent.next<local::RankExited>();
  EXPECT_FALSE(Json::parse(text_of(folder + "/status.json")).contains("loss"));
  end_server();
}

TEST_F(ArrivingTest, ExitOfTheProgramAfterTheArrivalIsNotAFailure) {
  const std::string folder = start_restored(0);
  Agent agent(folder);
  end_server();
  agent.ask<local::Done>(local::AwaitMemory{});
  ::kill(pid_in("restored"), SIGKILL);
  agent.next<local::RankExited>();
  agent.ask<local::Done>(local::AwaitMemory{});
}

TEST_F(ArrivingTest, ProgramIsKilledIfTheLazyPageServerIsKilled) {
  const std::string folder = start_restored(0);
  const Watch program(pid_in("restored"));
  const Watch server(pid_in("server"));
  ::kill(pid_in("server"), SIGKILL);
  EXPECT_TRUE(program.ended());
  EXPECT_TRUE(server.ended());
}

TEST_F(ArrivingTest, ProgramWithoutLazyPagesHasCompleteMemory) {
  const std::string folder = start_transparent();
  Agent agent(folder);
  agent.ask<local::Done>(local::AwaitMemory{});
}

TEST_F(ArrivingTest, LazyPageServerEndsAfterAFailedRestore) {
  const std::string folder = root_ + "/job";
  Json config = transparent();
  config["restore"] = {{"command", shell("exit 1")}, {"pid_file", root_ + "/restored"}};
  config["restore"]["lazy_pages"] = {{"command", shell("tail -f /dev/null & echo $! > " + root_ + "/server")},
                                     {"pid_file", root_ + "/server"}};
  EXPECT_NE(launch(folder, config), 0);
  EXPECT_NE(text_of(folder + "/said").find("CRIU could not restore the program"), std::string::npos);
  EXPECT_TRUE(Watch(pid_in("server")).ended());
}

}  // namespace
}  // namespace ckpt::keeper
