// SPDX-License-Identifier: Apache-2.0
// Tests exit codes and refusals that scripts rely on, for unusual answers of the coordinator.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "tests/unit/tools/gpumigrate/run_command.h"

namespace ckpt::cli {
namespace {

std::string migration(const std::string& fields) {
  return R"({"id":"m7","job":"j3","job_name":"train","from":"node-a:0","to":"node-b:0","strategy":"live",)" +
         fields + "}";
}
const std::string kOpen = migration(R"("revision":4,"state":"precopy","open":true)");
const std::string kMoved = migration(
    R"("revision":9,"state":"closed","open":false,"result":"done","exit_code":0,"error":null,"runs_at":"node-b:0","report":null)");

std::string job(const std::string& fields) {
  return R"({"id":"j3","name":"train","node":"node-a","gpu":0,)" + fields + "}";
}
const std::string kRunning = job(R"("state":"running","exit_code":null,"reason":null)");

TEST(ExitCodes, ALateAbortIsRefused) {
  FakeCoordinator moved([](const FakeRequest& r) { return json(r.method == "POST" ? kOpen : kMoved); });
  EXPECT_EQ(run(moved.home(), {"abort", "m7"}).code, 5);
}

// If a coordinator answers less than docs/api.md promises, a command must not report success.
TEST(ExitCodes, AResultWithoutAnExitCodeIsUnknown) {
  FakeCoordinator migrations([](const FakeRequest&) { return json(migration(R"("open":false)")); });
  EXPECT_EQ(run(migrations.home(), {"watch", "m7"}).code, 6);
  FakeCoordinator tasks([](const FakeRequest&) {
    return json(R"({"id":"t1","verb":"snapshot","job":"j3","job_name":"train","open":false})");
  });
  EXPECT_EQ(run(tasks.home(), {"snapshot", "train"}).code, 6);
  FakeCoordinator drains([](const FakeRequest&) { return json(R"({"id":"d3","open":false,"jobs":[]})"); });
  EXPECT_EQ(run(drains.home(), {"drain", "node-a"}).code, 6);
}

TEST(ExitCodes, AnUnknownErrorCodeUsesItsExitCode) {
  for (const int code : {5, 6}) {
    FakeCoordinator newer(
        [code](const FakeRequest&) { return refusal(409, "of_a_later_version", "because", code); });
    EXPECT_EQ(run(newer.home(), {"jobs"}).code, code);
  }
}

TEST(ExitCodes, ControlCOnAWatchLeavesTheMigrationRunning) {
  std::atomic<bool> aborted{false};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.ends_with("/abort")) aborted = true;
    if (has(request.target, "/watch") && !aborted) ::kill(::getpid(), SIGINT);
    return json(aborted ? kMoved : kOpen);
  });
  const Ended ended = run(coordinator.home(), {"watch", "m7"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_TRUE(has(ended.err, "m7 continues")) << ended.err;
  for (const FakeRequest& request : coordinator.requests())
    EXPECT_EQ(request.method, "GET") << request.target;
}

TEST(ExitCodes, AJobNamedLikeAnIdSelectsItsOpenMigration) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (has(request.target, "/v1/migrations/m7")) return refusal(404, "not_found", "no such migration", 5);
    if (has(request.target, "/v1/jobs/m7"))
      return json(R"({"id":"j1","name":"m7","open_migration":{"id":"m9"},"migrations":["m9"]})");
    return json(kMoved);
  });
  EXPECT_EQ(run(coordinator.home(), {"watch", "m7"}).code, 0);
  EXPECT_TRUE(has(coordinator.requests().back().target, "/v1/migrations/m9"));
}

TEST(ExitCodes, WatchOfAnUnknownMigrationIsRefusedImmediately) {
  FakeCoordinator coordinator([](const FakeRequest&) { return refusal(404, "not_found", "because", 5); });
  EXPECT_EQ(run(coordinator.home(), {"watch", "m7"}).code, 5);
  EXPECT_EQ(coordinator.requests().size(), 2u) << "a job may have that name, too";
  const Ended nobody = run("/nonexistent", {"watch", "m7"});
  EXPECT_EQ(nobody.code, 5);
  EXPECT_FALSE(has(nobody.err, "retrying")) << nobody.err;
}

TEST(ExitCodes, ACoordinatorThatIsNotReadyIsQueriedAgain) {
  std::atomic<int> asked{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (has(request.target, "/logs"))
      return asked++ == 0 ? FakeAnswer{200, "x", {{"X-Next-Offset", "1"}, {"X-Ended", "false"}}}
             : asked == 2 ? refusal(503, "unavailable", "because", 5)
                          : FakeAnswer{200, "y", {{"X-Next-Offset", "2"}, {"X-Ended", "true"}}};
    return json(kRunning);
  });
  const Ended ended = run(coordinator.home(), {"logs", "-f", "train"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "xy");
}

TEST(ExitCodes, ALogAnswerWithoutAnOffsetIsAnUnknownOutcome) {
  FakeCoordinator coordinator([](const FakeRequest&) { return FakeAnswer{200, "x", {}}; });
  EXPECT_EQ(run(coordinator.home(), {"logs", "train"}).code, 6);
}

TEST(ExitCodes, EndOfAJobDeterminesTheExitCode) {
  const struct {
    const char* fields;
    int exit_code;
  } cases[] = {{R"("state":"exited","exit_code":7,"reason":null)", 7},
               {R"("state":"exited","exit_code":null,"reason":"how is known to its parent only")", 6},
               {R"("state":"failed","exit_code":9,"reason":"it did not start")", 9},
               {R"("state":"failed","exit_code":null,"reason":"it did not start")", 125},
               {R"("state":"lost","exit_code":null,"reason":"its node is gone")", 125}};
  for (const auto& one : cases) {
    // A second answer would differ. The test shows that the command took the first answer as the end.
    std::atomic<int> asked{0};
    FakeCoordinator coordinator([&](const FakeRequest&) {
      return json(asked++ == 0 ? job(one.fields) : job(R"("state":"exited","exit_code":77,"reason":null)"));
    });
    const Ended ended = run(coordinator.home(), {"wait", "train"});
    EXPECT_EQ(ended.code, one.exit_code) << one.fields;
  }
}

TEST(ExitCodes, SecondControlCOnRunLeavesTheJobRunning) {
  std::atomic<int> stops{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) -> FakeAnswer {
    if (request.target.ends_with("/stop")) ++stops;
    if (!has(request.target, "/logs"))
      return json(has(request.target, "/wait") ? job(R"("state":"exited","exit_code":0)") : kRunning);
    if (stops > 2) return {200, "", {{"X-Next-Offset", "0"}, {"X-Ended", "true"}}};
    ::kill(::getpid(), SIGINT);
    return {200, "", {{"X-Next-Offset", "0"}, {"X-Ended", "false"}}};
  });
  const Ended ended = run(coordinator.home(), {"run", "--", "train"});
  EXPECT_EQ(ended.code, 125) << ended.err;
  EXPECT_TRUE(has(ended.err, "Stopped following job j3; `gpumigrate wait j3` waits for its end"))
      << ended.err;
  EXPECT_EQ(stops, 1);
}

TEST(ExitCodes, ARefusedRunIsNotReportedAsAJobFailure) {
  const std::pair<const char*, int> refusals[] = {{"usage", 64}, {"refused", 5}};
  for (const auto& [code, exit_code] : refusals) {
    FakeCoordinator coordinator([&, code = code, exit_code = exit_code](const FakeRequest&) {
      return refusal(400, code, "because", exit_code);
    });
    EXPECT_EQ(run(coordinator.home(), {"run", "--", "train"}).code, exit_code) << code;
  }
  FakeCoordinator broken([](const FakeRequest&) { return refusal(500, "internal", "because", 6); });
  EXPECT_EQ(run(broken.home(), {"run", "--", "train"}).code, 125);
  EXPECT_EQ(run(broken.home(), {"run", "--detach", "--", "train"}).code, 6);
}

TEST(ExitCodes, AProgramThatCannotBeStartedHasTheExitCodeOfAShell) {
  for (const int status : {126, 127}) {
    FakeCoordinator coordinator(
        [status](const FakeRequest&) { return refusal(409, "refused", "nosuchprog: not found", status); });
    const Ended ended = run(coordinator.home(), {"run", "--", "nosuchprog"});
    EXPECT_EQ(ended.code, status);
    EXPECT_EQ(ended.err, "gpumigrate: nosuchprog: not found\n");
    EXPECT_EQ(run(coordinator.home(), {"run", "--detach", "--", "nosuchprog"}).code, status);
  }
}

TEST(ExitCodes, InvalidPlaceIsRefusedWithoutARequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kRunning, 201); });
  for (const char* place : {"node-a:", "node-a:x", "node-a:0x", "node-a:-1", "node-a:99999999999"})
    EXPECT_EQ(run(coordinator.home(), {"run", "--detach", "--node", place, "--", "x"}).code, 64) << place;
  EXPECT_TRUE(coordinator.requests().empty());
}

TEST(ExitCodes, AProcessOfAnotherMachineIsRefusedForAdoption) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kRunning, 201); });
  // The kernel assigns no process number as high as this.
  const Ended ended = run(coordinator.home(), {"adopt", "1073741824"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_TRUE(coordinator.requests().empty());
}

TEST(Requests, JobEnvironmentContainsNoGpumigrateVariables) {
  const char* const names[] = {"CKPT_FAULT_DIR_X", "CUDASIM_X", "GPUMIGRATE_X"};
  for (const char* name : names) ::setenv(name, "1", 1);
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kRunning, 201); });
  run(coordinator.home(), {"run", "--detach", "--", "x"});
  for (const char* name : names) ::unsetenv(name);
  const Json env = Json::parse(coordinator.requests().at(0).body).at("env");
  for (const char* name : names) EXPECT_FALSE(env.contains(name)) << name;
}

TEST(Requests, SnapshotSendsAFolderAsAnAbsolutePathAndANodeByName) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(
        R"({"id":"t1","verb":"snapshot","job":"j3","job_name":"train","open":false,"exit_code":0,"image":"i"})");
  });
  run(coordinator.home(), {"snapshot", "train", "--to", "./vault"});
  run(coordinator.home(), {"snapshot", "train", "--to", "node-b"});
  EXPECT_EQ(Json::parse(coordinator.requests().at(0).body).at("to"),
            (std::filesystem::current_path() / "vault").string());
  EXPECT_EQ(Json::parse(coordinator.requests().at(1).body).at("to"), "node-b");
}

}  // namespace
}  // namespace ckpt::cli
