// SPDX-License-Identifier: Apache-2.0
// Tests commands against a coordinator that answers in the form of docs/api.md.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>

#include "tests/unit/tools/gpumigrate/run_command.h"
#include "tools/gpumigrate/client/job_environment.h"

namespace ckpt::cli {
namespace {

constexpr const char* kJob =
    R"({"id":"j3","name":"train","state":"running","node":"node-a","gpu":0,"ranks":[],"incarnation":1,"mode":"cooperative",
        "movable":true,"reason":null,"state_bytes":1073741824,"started":"2026-01-01T00:00:00.123Z","last_downtime_ms":null,"exit_code":null})";
constexpr const char* kEndedJob =
    R"({"id":"j3","name":"train","state":"exited","exit_code":7,"reason":null})";

std::string migration(const std::string& fields) {
  return R"({"id":"m7","job":"j3","job_name":"train","from":"node-a:0","to":"node-b:0","strategy":"live","reason":null,)" +
         fields + "}";
}
const std::string kOpen = migration(
    R"("revision":4,"state":"precopy","open":true,"progress":{"round":2,"done_bytes":1048576,"total_bytes":8388608,"state_bytes":8388608,
    "remaining_bytes":524288,"dirty_bytes_per_second":1048576,"throughput_bytes_per_second":1073741824,"estimate_ms":3.5,"eta_ms":120})");
const std::string kDoneMigration = migration(
    R"("revision":9,"state":"closed","open":false,"result":"done","exit_code":0,"error":null,"runs_at":"node-b:0",
    "options":{"max_downtime_ms":10,"bandwidth":1073741824},
    "report":{"id":"m7","downtime_ms":12.5,"max_downtime_ms":10,"limit_kept":false,"bound_ms":10,"bound_by":"scan","rounds":3,"verified":true,
    "downtime_breakdown_ms":{"quiesce":1,"final":11.5,"context":0}})");

std::string closed(const std::string& result, int code) {
  return migration(R"("revision":9,"state":"closed","open":false,"result":")" + result + R"(","exit_code":)" +
                   std::to_string(code) + R"(,"error":"because","runs_at":"node-a:0","report":null)");
}

TEST(Commands, JobsAreListedAsATableOrJson) {
  FakeCoordinator coordinator(
      [](const FakeRequest&) { return json((std::string("[") + kJob + "]").c_str()); });
  const Ended table = run(coordinator.home(), {"jobs"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("NAME   ID  STATE"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("train  j3  running  node-a:0"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("1 GiB"), std::string::npos) << table.out;
  const Ended as_json = run(coordinator.home(), {"jobs", "-o", "json"});
  EXPECT_EQ(Json::parse(as_json.out), Json::parse(std::string("[") + kJob + "]"));
  EXPECT_EQ(coordinator.requests().at(0).token, "");
  EXPECT_EQ(coordinator.requests().at(0).target, "/v1/jobs?limit=500");
}

TEST(Commands, ListsAreReadPageByPage) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target == "/v1/jobs?limit=500")
      return json(R"({"jobs":[{"id":"j1"},{"id":"j2"}],"next":"j2"})");
    if (request.target == "/v1/jobs?limit=500&after=j2") return json(R"({"jobs":[{"id":"j9"}],"next":null})");
    return refusal(404, "not_found", "no such page", 5);
  });
  const Ended all = run(coordinator.home(), {"jobs", "-o", "json"});
  EXPECT_EQ(Json::parse(all.out), Json::parse(R"([{"id":"j1"},{"id":"j2"},{"id":"j9"}])")) << all.err;
}

TEST(Commands, ImagesAreReadPageByPage) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target == "/v1/images?limit=500")
      return json(R"({"images":[{"id":"j1.v1@a"}],"next":"j1.1.1.5.1@/x"})");
    if (request.target == "/v1/images?limit=500&after=j1.1.1.5.1%40%2Fx")
      return json(R"({"images":[{"id":"j2.v1@a"}],"next":null})");
    return refusal(404, "not_found", "no such page", 5);
  });
  const Ended all = run(coordinator.home(), {"images", "-o", "json"});
  EXPECT_EQ(Json::parse(all.out), Json::parse(R"([{"id":"j1.v1@a"},{"id":"j2.v1@a"}])")) << all.err;
}

TEST(Commands, AnEndlessListIsRefused) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(R"({"migrations":[],"next":"m2"})"); });
  EXPECT_NE(run(coordinator.home(), {"migrations"}).code, 0);
  EXPECT_EQ(coordinator.requests().size(), 2U);
}

TEST(Commands, ControlCharactersOfANameDoNotReachTheTerminal) {
  FakeCoordinator coordinator(
      [](const FakeRequest&) { return json(R"([{"id":"j1","name":"a\u001b[2Jb"}])"); });
  EXPECT_EQ(run(coordinator.home(), {"jobs"}).out.find('\x1b'), std::string::npos);
}

TEST(Commands, ARefusalPrintsOneLineAndExitsWithFive) {
  FakeCoordinator coordinator([](const FakeRequest&) { return refusal(404, "not_found", "no job nope", 5); });
  const Ended ended = run(coordinator.home(), {"migrate", "nope"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_EQ(ended.err, "gpumigrate: no job nope\n");
  EXPECT_EQ(ended.out, "");
}

TEST(Commands, EachRefusalHasItsExitCode) {
  const struct {
    unsigned status;
    const char* code;
    int exit_code;
  } cases[] = {{400, "usage", 64},  {401, "unauthorized", 64}, {404, "not_found", 5}, {409, "refused", 5},
               {501, "refused", 5}, {503, "unavailable", 5},   {500, "internal", 6}};
  for (const auto& one : cases) {
    FakeCoordinator coordinator(
        [&](const FakeRequest&) { return refusal(one.status, one.code, "x", one.exit_code); });
    EXPECT_EQ(run(coordinator.home(), {"jobs"}).code, one.exit_code) << one.code;
  }
}

TEST(Commands, CommandWithoutACoordinatorIsRefused) {
  const Ended ended = run("/nonexistent", {"stop", "j1"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_NE(ended.err.find("local up"), std::string::npos) << ended.err;
}

TEST(Commands, DisconnectionAfterTheRequestIsAnUnknownOutcome) {
  FakeCoordinator coordinator([](const FakeRequest&) { return FakeAnswer{.hang_up = true}; });
  EXPECT_EQ(run(coordinator.home(), {"migrate", "train"}).code, 6);
}

TEST(Commands, InvalidValuesAreRefusedWithoutARequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json("{}"); });
  const std::vector<std::vector<std::string>> lines = {
      {"frobnicate"},
      {"migrate"},
      {"migrate", "j1", "--max-downtime", "200"},
      {"migrate", "j1", "--bandwidth", "10GiB"},
      {"migrate", "j1", "--timeout", "ten"},
      {"migrate", "j1", "--max-rounds", "0"},
      {"migrate", "j1", "--codec", "zip"},
      {"migrate", "j1", "--codec", "difference"},
      {"migrate", "j1", "--codec", "difference", "--shadow-memory", "0B"},
      {"migrate", "j1", "--shadow-memory", "much"},
      {"migrate", "j1", "--shadow-memory", "2TiB"},
      {"migrate", "j1", "--shadow-memory", "-1"},
      {"migrate", "j1", "--slowdown", "3"},
      {"migrate", "j1", "--slowdown", "0%"},
      {"migrate", "j1", "--slowdown", "0.01%"},
      {"migrate", "j1", "--slowdown", "101%"},
      {"migrate", "j1", "--live", "--stop-copy"},
      {"migrate", "j1", "--if-not-converged", "perhaps"},
      {"migrate", "j1", "--communicators", "never"},
      {"migrate", "j1", "--connections", "keep"},
      {"run", "--connections", "keep", "--", "x"},
      {"jobs", "-o", "yaml"},
      {"jobs", "--", "x"},
      {"run"},
      {"run", "train"},
      {"run", "--ranks", "2", "--communicators", "never", "--", "x"},
      {"run", "--namespaces", "some", "--", "x"},
      {"run", "--gpu-memory", "1G", "--", "x"},
      {"run", "--env", "X", "--", "x"},
      {"run", "--node", "a:b", "--", "x"},
      {"set", "m1", "speed", "1"},
      {"set", "m1", "bandwidth", "fast"},
      {"resolve", "m1"},
      {"resolve", "m1", "--at", "moon"},
      {"wait", "j1", "--timeout", "1"},
      {"local", "up", "--nodes", "0"},
      {"local", "up", "--gpu-memory", "much"},
  };
  for (const auto& line : lines) {
    const Ended ended = run(coordinator.home(), line);
    EXPECT_EQ(ended.code, 64) << ::testing::PrintToString(line) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }
  EXPECT_TRUE(coordinator.requests().empty());
}

TEST(Commands, MigrateSendsItsOptionsAndPrintsTheReport) {
  std::atomic<int> watched{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.method == "POST") return json(kOpen, 202);
    return json(watched++ == 0 ? kOpen.c_str() : kDoneMigration.c_str());
  });
  const Ended ended =
      run(coordinator.home(),
          {"migrate",    "train",           "--to",   "node-b:0",           "--stop-copy", "--max-downtime",
           "200ms",      "--bandwidth",     "1GiB/s", "--timeout",          "10m",         "--max-rounds",
           "5",          "--reason",        "r",      "--if-not-converged", "abort",       "--codec",
           "difference", "--shadow-memory", "4GiB",   "--slowdown",         "2.5%",        "--communicators",
           "in-pause",   "--connections",   "reset"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(
      Json::parse(coordinator.requests().at(0).body),
      Json::parse(
          R"({"to":"node-b:0","strategy":"stop-copy","max_downtime_ms":200.0,"if_not_converged":"abort","communicators":"in-pause",
                            "connections":"reset","bandwidth":1073741824,
                            "max_rounds":5,"timeout_ms":600000.0,"codec":"difference","shadow_memory_bytes":4294967296,
                            "slowdown_percent":2.5,"reason":"r"})"));
  EXPECT_EQ(coordinator.requests().at(0).target, "/v1/jobs/train/migrate");
  EXPECT_EQ(coordinator.requests().at(2).target, "/v1/migrations/m7/watch?since=4&timeout_ms=30000");
  EXPECT_NE(ended.out.find("moved train (j3) node-a:0 -> node-b:0"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("pause       12.5 ms (limit 10 ms: EXCEEDED; bound 10 ms by scan)"),
            std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("spent in    quiesce 1 ms, last copy 11.5 ms; link capped at 1 GiB/s\n"),
            std::string::npos)
      << ended.out;
  EXPECT_NE(ended.err.find("m7  train > node-b:0  round 2  "), std::string::npos) << ended.err;
}

TEST(Commands, AMoveOfRanksShowsTheSlowestRank) {
  const auto rank = [](const char* id, const char* name, const char* remaining) {
    return std::string(R"({"id":")") + id + R"(","job_name":")" + name +
           R"(","to":"node-b:0","strategy":"live","revision":4,"state":"precopy","open":true,"gang_move":"m7","moved_with":["m8","m9"],
               "progress":{"round":2,"state_bytes":100,"remaining_bytes":)" +
           remaining + "}}";
  };
  std::atomic<int> watched{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target == "/v1/migrations/m8") return json(rank("m8", "train.1", "70"));
    if (request.target == "/v1/migrations/m9")
      return refusal(404, "not_found", "There is no migration m9", 5);
    if (request.method == "POST" || watched++ < 2) return json(rank("m7", "train.0", "20"));
    return json(kDoneMigration);
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(coordinator.requests().at(1).target, "/v1/migrations/m7/watch?since=0&timeout_ms=30000");
  EXPECT_EQ(coordinator.requests().at(4).target, "/v1/migrations/m7/watch?since=4&timeout_ms=1000");
  EXPECT_NE(ended.err.find("m8  train.1 > node-b:0  round 2  [######              ]  30%"), std::string::npos)
      << ended.err;
  EXPECT_EQ(ended.err.find("train.0"), std::string::npos) << ended.err;
}

TEST(Commands, MigratePrintsOnlyTheReportAsJson) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kDoneMigration); });
  const Ended ended = run(coordinator.home(), {"migrate", "train", "-o", "json"});
  EXPECT_EQ(Json::parse(ended.out).at("downtime_ms"), 12.5);
  EXPECT_EQ(ended.err, "");
}

TEST(Commands, EachResultHasItsExitCode) {
  const std::pair<const char*, int> results[] = {{"failed", 1},   {"timed-out", 2}, {"interrupted", 2},
                                                 {"restored", 3}, {"lost", 4},      {"refused", 5}};
  for (const auto& [result, code] : results) {
    FakeCoordinator coordinator([&](const FakeRequest&) { return json(closed(result, code).c_str()); });
    const Ended ended = run(coordinator.home(), {"migrate", "train"});
    EXPECT_EQ(ended.code, code) << result;
    EXPECT_NE(ended.out.find(std::string(result) + ": train"), std::string::npos) << ended.out;
    EXPECT_NE(ended.out.find("the job runs at node-a:0"), std::string::npos) << ended.out;
  }
}

TEST(Commands, DisconnectionDuringAMigrationReportsTheNextCommand) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    return request.method == "POST" ? json(kOpen) : FakeAnswer{.hang_up = true};
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_NE(ended.err.find("gpumigrate watch m7"), std::string::npos) << ended.err;
}

TEST(Commands, ProgressIsShownDuringTheCopy) {
  std::atomic<int> watched{0};
  const std::string committed = kOpen.substr(0, kOpen.find("precopy")) + "committed" +
                                kOpen.substr(kOpen.find("precopy") + std::string("precopy").size());
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.method == "POST") return json(kOpen);
    const int turn = watched++;
    return json(turn == 0 ? kOpen.c_str() : turn == 1 ? committed.c_str() : kDoneMigration.c_str());
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_NE(ended.err.find("93%  pause ~3.5 ms  ETA 1 s\n"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("m7  train > node-b:0  committed\n"), std::string::npos) << ended.err;
}

TEST(Commands, TerminalShowsProgressOnASingleLine) {
  std::atomic<int> watched{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    return json(request.method == "POST" || watched++ < 2 ? kOpen.c_str() : kDoneMigration.c_str());
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"}, {.terminal = true});
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 0);
  EXPECT_NE(ended.err.find("\rm7  train > node-b:0  round 2"), std::string::npos);
  EXPECT_TRUE(ended.err.ends_with("\r\x1b[K"));
}

TEST(Commands, ControlCAbortsTheMigration) {
  std::atomic<bool> aborted{false};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.ends_with("/abort")) aborted = true;
    if (request.target.find("/watch") == std::string::npos) return json(kOpen);
    if (aborted) return json(closed("interrupted", 2).c_str());
    ::kill(::getpid(), SIGINT);
    return json(kOpen);
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_TRUE(aborted);
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_NE(ended.out.find("the job runs at node-a:0"), std::string::npos) << ended.out;
}

// A lost coordinator cannot receive an abort, and a user who interrupts does not want a minute of retries.
TEST(Commands, InterruptWithoutACoordinatorEndsImmediatelyAndNamesTheNextCommand) {
  for (const char* command : {"migrate", "watch"}) {
    std::atomic<int> lost{0};
    FakeCoordinator coordinator([&](const FakeRequest& request) {
      if (request.target.find("/watch") == std::string::npos) return json(kOpen);
      if (lost++ == 1) ::kill(::getpid(), SIGTERM);
      return FakeAnswer{.hang_up = true};
    });
    const Ended ended = run(coordinator.home(), {command, "m7"}, {.patience = std::chrono::hours(1)});
    EXPECT_EQ(ended.code, 6) << command;
    EXPECT_NE(ended.err.find("`gpumigrate watch m7` asks again"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find("aborting"), std::string::npos) << ended.err;
  }
}

TEST(Commands, UndeliveredAbortIsAnUnknownOutcome) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target.ends_with("/abort")) return FakeAnswer{.hang_up = true};
    if (request.target.find("/watch") != std::string::npos) ::kill(::getpid(), SIGTERM);
    return json(kOpen);
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"}, {.patience = std::chrono::hours(1)});
  EXPECT_EQ(ended.code, 6);
  EXPECT_NE(ended.err.find("`gpumigrate watch m7` asks again"), std::string::npos) << ended.err;
}

TEST(Commands, SecondControlCEndsACommandWithoutAnAnswer) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    ::kill(::getpid(), SIGINT);
    ::kill(::getpid(), SIGTERM);
    return FakeAnswer{.silent = true};
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_NE(ended.err.find("`gpumigrate migrations` shows whether train is being moved"), std::string::npos)
      << ended.err;
}

TEST(Commands, SecondControlCStopsFollowingTheRequestedAbort) {
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.find("/watch") != std::string::npos) ::kill(::getpid(), SIGINT);
    return json(kOpen);
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_NE(ended.err.find("The abort of migration m7 is requested; `gpumigrate watch m7` shows its outcome"),
            std::string::npos)
      << ended.err;
}

TEST(Commands, SecondControlCAfterARefusedAbortSaysThatTheMigrationWasNotAborted) {
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.ends_with("/abort")) return refusal(409, "refused", "too late", 5);
    if (request.target.find("/watch") != std::string::npos) ::kill(::getpid(), SIGINT);
    return json(kOpen);
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_NE(ended.err.find("The abort of migration m7 was not accepted; `gpumigrate watch m7` shows it"),
            std::string::npos)
      << ended.err;
}

TEST(Commands, ControlCLeavesAWatchedMigrationRunning) {
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.find("/watch") != std::string::npos) ::kill(::getpid(), SIGINT);
    return json(kOpen);
  });
  const Ended ended = run(coordinator.home(), {"watch", "m7"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_NE(ended.err.find("Migration m7 continues"), std::string::npos) << ended.err;
}

TEST(Commands, LateAbortIsRefused) {
  FakeCoordinator late(
      [](const FakeRequest&) { return refusal(409, "refused", "too late: it runs at node-b:0", 5); });
  const Ended ended = run(late.home(), {"abort", "m7"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_EQ(ended.err, "gpumigrate: too late: it runs at node-b:0\n");
  FakeCoordinator in_time([](const FakeRequest& r) {
    return json(r.method == "POST" ? kOpen.c_str() : closed("interrupted", 2).c_str());
  });
  EXPECT_EQ(run(in_time.home(), {"abort", "m7"}).code, 0);
}

TEST(Commands, DryRunShowsReasons) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(
        R"({"dry_run":true,"job":"train","from":"node-a:0","to":null,"strategy":"live","possible":false,"reason":"no memory",
        "candidates":[{"node":"node-b","gpu":0,"suitable":false,"score":0,"reasons":["1 GiB free, 2 GiB needed"]}]})");
  });
  const Ended ended = run(coordinator.home(), {"migrate", "train", "--dry-run"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_NE(ended.out.find("cannot move: no memory"), std::string::npos) << ended.out;
  EXPECT_FALSE(has(ended.out, "1 GiB free, 2 GiB needed")) << ended.out;
  EXPECT_TRUE(
      has(run(coordinator.home(), {"migrate", "train", "--dry-run", "-v"}).out, "1 GiB free, 2 GiB needed"));
}

TEST(Commands, CopyOptionsAreShown) {
  const std::string options =
      R"("options":{"max_downtime_ms":200,"bandwidth":0,"max_rounds":0,"codec":"planes","shadow_memory_bytes":1073741824,
      "slowdown_percent":3.0})";
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.method == "POST")
      return json(
          (R"({"dry_run":true,"job":"train","from":"node-a:0","to":"node-b:0","strategy":"live","possible":true,)" +
           options + R"(,"state_bytes":1024,"candidates":[]})")
              .c_str());
    return json(
        (std::string(kJob).substr(0, std::string(kJob).size() - 1) +
         R"(,"open_migration":{"id":"m7","state":"precopy","from":"node-a:0","to":"node-b:0","strategy":"live",)" +
         options + "}}")
            .c_str());
  });
  const std::string shown = "codec planes, shadow memory 1 GiB, slowdown 3.0%";
  const Ended plan = run(coordinator.home(), {"migrate", "train", "--dry-run"});
  EXPECT_NE(plan.out.find(shown), std::string::npos) << plan.out << plan.err;
  const Ended job = run(coordinator.home(), {"describe", "train"});
  EXPECT_NE(job.out.find("m7 precopy, live, " + shown), std::string::npos) << job.out << job.err;
}

TEST(Commands, SetSendsOnlyTheNamedLimit) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kOpen); });
  EXPECT_EQ(run(coordinator.home(), {"set", "m7", "max-downtime", "50ms"}).code, 0);
  EXPECT_EQ(run(coordinator.home(), {"set", "m7", "bandwidth", "1KiB/s"}).code, 0);
  std::vector<Json> posts;
  for (const FakeRequest& request : coordinator.requests())
    if (request.method == "POST") posts.push_back(Json::parse(request.body));
  EXPECT_EQ(posts, (std::vector<Json>{Json::parse(R"({"max_downtime_ms":50.0})"),
                                      Json::parse(R"({"bandwidth":1024})")}));
}

// Answers with the log "hello world" in two pieces.
FakeAnswer log_answer(const FakeRequest& request) {
  if (request.target.find("offset=0&") != std::string::npos)
    return {200, "hello ", {{"X-Next-Offset", "6"}, {"X-Ended", "false"}}};
  return {200,
          request.target.find("offset=6&") != std::string::npos ? "world\n" : "",
          {{"X-Next-Offset", "12"}, {"X-Ended", "true"}}};
}

TEST(Commands, LogPartsAreJoined) {
  FakeCoordinator coordinator(log_answer);
  EXPECT_EQ(run(coordinator.home(), {"logs", "train"}).out, "hello world\n");
  EXPECT_EQ(run(coordinator.home(), {"logs", "-f", "train"}).out, "hello world\n");
}

TEST(Commands, LogsContinueAfterALostConnection) {
  std::atomic<int> calls{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    return ++calls == 2 ? FakeAnswer{.hang_up = true} : log_answer(request);
  });
  const Ended ended = run(coordinator.home(), {"logs", "-f", "train"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "hello world\n");
}

FakeAnswer run_answer(const FakeRequest& request) {
  if (request.target.find("/logs") != std::string::npos) return log_answer(request);
  return json(request.target.find("/wait") != std::string::npos ? kEndedJob : kJob);
}

TEST(Commands, RunReturnsTheExitCodeOfTheJob) {
  FakeCoordinator coordinator(run_answer);
  const Ended ended =
      run(coordinator.home(), {"run", "--name", "train", "--node", "node-a:0", "--gpu-memory", "1GiB",
                               "--env", "A=b=c", "--cwd", "/tmp", "--", "train", "-o", "x", "--", "--steps"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_EQ(ended.out, "hello world\n");
  const Json body = Json::parse(coordinator.requests().at(0).body);
  EXPECT_EQ(body.at("argv"), Json({"train", "-o", "x", "--", "--steps"}));
  EXPECT_EQ(body.at("cwd"), "/tmp");
  EXPECT_EQ(body.at("node"), "node-a");
  EXPECT_EQ(body.at("gpu"), 0);
  EXPECT_EQ(body.at("gpu_memory_bytes"), 1 << 30);
  EXPECT_EQ(body.at("env").at("A"), "b=c");
}

TEST(Commands, LibraryPathAndGpusAreChosenByTheNode) {
  ::setenv("LD_LIBRARY_PATH", "/elsewhere", 1);
  ::setenv("MY_SETTING", "yes", 1);
  FakeCoordinator coordinator(run_answer);
  run(coordinator.home(), {"run", "--detach", "--env-all", "--", "./x"});
  ::unsetenv("LD_LIBRARY_PATH");
  const Json body = Json::parse(coordinator.requests().at(0).body);
  EXPECT_FALSE(body.at("env").contains("LD_LIBRARY_PATH"));
  EXPECT_EQ(body.at("env").at("MY_SETTING"), "yes");
  EXPECT_TRUE(body.at("argv").at(0).get<std::string>().starts_with("/"));
}

// The environment is stored in several places, so a secret of the shell must not be in it.
TEST(Commands, AJobReceivesEnvironmentVariablesButNoSecrets) {
  const std::map<std::string, bool> variables = {{"AWS_SECRET_ACCESS_KEY", false},
                                                 {"GITHUB_TOKEN", false},
                                                 {"SSH_AUTH_SOCK", false},
                                                 {"MY_CANARY", false},
                                                 {"HF_TOKEN", false},
                                                 {"WANDB_API_KEY", false},
                                                 {"PYTHON_PASSWORD", false},
                                                 {"HF_HOME", true},
                                                 {"LC_ALL", true},
                                                 {"NCCL_DEBUG", true},
                                                 {"PYTHONPATH", true},
                                                 {"CONDA_PREFIX", true},
                                                 {"TOKENIZERS_PARALLELISM", true},
                                                 {"CUDA_LAUNCH_BLOCKING", true},
                                                 {"VIRTUAL_ENV", true}};
  for (const auto& [name, sent] : variables) ::setenv(name.c_str(), "canary-value", 1);
  FakeCoordinator coordinator(run_answer);
  run(coordinator.home(), {"run", "--detach", "--", "./x"});
  const Json env = Json::parse(coordinator.requests().at(0).body).at("env");
  for (const auto& [name, sent] : variables) {
    EXPECT_EQ(env.contains(name), sent) << name;
    EXPECT_EQ(is_sent_by_itself(name), sent) << name;
    ::unsetenv(name.c_str());
  }
  EXPECT_TRUE(env.contains("PATH"));
}

TEST(Commands, VariablesAreSentByNameValueAndFile) {
  ::setenv("MY_CANARY", "of the shell", 1);
  FakeCoordinator coordinator(run_answer);
  const std::string file = ::testing::TempDir() + "/variables";
  std::ofstream(file) << "# settings\n\nFROM_FILE=1\nBOTH=file\n MY_CANARY\n";
  run(coordinator.home(),
      {"run", "--detach", "--env-file", file, "--env", "BOTH=named", "--env", "MY_CANARY", "--", "./x"});
  const Json env = Json::parse(coordinator.requests().at(0).body).at("env");
  EXPECT_EQ(env.at("FROM_FILE"), "1");
  EXPECT_EQ(env.at("BOTH"), "named");
  EXPECT_EQ(env.at("MY_CANARY"), "of the shell");
  ::unsetenv("MY_CANARY");
  const std::size_t sent = coordinator.requests().size();
  for (const char* wrong : {"MY_CANARY", "=x", ""}) {
    const Ended ended = run(coordinator.home(), {"run", "--detach", "--env", wrong, "--", "./x"});
    EXPECT_EQ(ended.code, 64) << wrong << ended.err;
  }
  EXPECT_EQ(coordinator.requests().size(), sent) << "a run that is refused sends nothing";
}

TEST(Commands, ControlCOnRunStopsTheJob) {
  std::atomic<bool> stopped{false};
  FakeCoordinator coordinator([&](const FakeRequest& request) -> FakeAnswer {
    if (request.target.ends_with("/stop")) stopped = true;
    if (request.target.find("/logs") == std::string::npos || stopped) return run_answer(request);
    ::kill(::getpid(), SIGINT);
    return {200, "", {{"X-Next-Offset", "0"}, {"X-Ended", "false"}}};
  });
  const Ended ended = run(coordinator.home(), {"run", "--", "train"});
  EXPECT_TRUE(stopped);
  EXPECT_EQ(ended.code, 7) << ended.err;
}

TEST(Commands, RunThatCannotReadTheJobExitsWith125) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    return request.method == "POST" ? json(kJob, 201) : refusal(500, "internal", "disk", 6);
  });
  EXPECT_EQ(run(coordinator.home(), {"run", "--", "train"}).code, 125);
}

TEST(Commands, ARequestForTwoGpusIsRefused) {
  FakeCoordinator coordinator(
      [](const FakeRequest&) { return refusal(501, "refused", "more than one GPU: not yet", 5); });
  EXPECT_EQ(run(coordinator.home(), {"run", "--gpus", "2", "--", "x"}).code, 5);
}

TEST(Commands, WaitReturnsTheExitCodeOfTheJob) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kEndedJob); });
  EXPECT_EQ(run(coordinator.home(), {"wait", "train"}).code, 7);
  FakeCoordinator running([](const FakeRequest&) { return json(kJob); });
  EXPECT_EQ(run(running.home(), {"wait", "train", "--timeout", "0"}).code, 124);
}

// Answers orders, but closes the connection for the first `away` queries about the job's end.
FakeAnswer away_at_first(const FakeRequest& request, std::atomic<int>& away) {
  if (request.method == "POST") return json(kJob);
  return away-- > 0 ? FakeAnswer{.hang_up = true} : json(kEndedJob);
}

TEST(Commands, StopAndWaitSurviveARestartOfTheCoordinator) {
  for (const char* verb : {"stop", "wait"}) {
    std::atomic<int> away{2};
    std::atomic<bool> first{true};
    FakeCoordinator coordinator([&](const FakeRequest& request) {
      if (request.method == "GET" && first.exchange(false)) return json(kJob);
      return away_at_first(request, away);
    });
    const Ended ended = run(coordinator.home(), {verb, "train"}, {.patience = std::chrono::hours(1)});
    EXPECT_EQ(ended.code, std::string(verb) == "stop" ? 0 : 7) << verb << ": " << ended.err;
    EXPECT_TRUE(has(ended.err, "retrying")) << ended.err;
  }
}

TEST(Commands, DisconnectionAfterAStopIsNotReportedAsARefusal) {
  std::atomic<int> away{1000};
  FakeCoordinator coordinator([&](const FakeRequest& request) { return away_at_first(request, away); });
  const Ended ended = run(coordinator.home(), {"stop", "train"});
  EXPECT_EQ(ended.code, 6) << ended.err;
  EXPECT_TRUE(has(ended.err, "`gpumigrate wait j3` asks again")) << ended.err;
  FakeCoordinator never([](const FakeRequest&) { return FakeAnswer{.hang_up = true}; });
  EXPECT_FALSE(has(run(never.home(), {"wait", "train"}).err, "retrying"));
}

TEST(Commands, EachEventIsPrintedOnOneLine) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    return json(
        request.target.find("since=0&") != std::string::npos
            ? R"({"events":[{"id":1,"time":"2026-01-01T00:00:00.5Z","kind":"job-started","job":"j1","migration":null,"node":null,"text":"t"}],"next":1})"
            : R"({"events":[],"next":1})");
  });
  EXPECT_EQ(run(coordinator.home(), {"events"}).out, "2026-01-01T00:00:00Z  job-started  j1  t\n");
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"events", "-o", "json"}).out).at("id"), 1);
}

TEST(Commands, AMalformedAnswerIsReportedOnOneLine) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json("<html>"); });
  const Ended ended = run(coordinator.home(), {"jobs"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
}

}  // namespace
}  // namespace ckpt::cli
