// SPDX-License-Identifier: Apache-2.0
// Tests commands that follow operations of the coordinator (drains, rebalances, snapshots and restores), at
// Ctrl-C and without a coordinator. The file also tests cordons and policies. The coordinator answers in the
// form of docs/api.md.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "tests/unit/tools/gpumigrate/run_command.h"
#include "tests/unit/tools/gpumigrate/screen_samples.h"

namespace ckpt::cli {
namespace {

FakeAnswer forgotten() {
  return json(R"({"error":{"code":"not_found","message":"there is none","exit_code":5}})", 404);
}

bool asked(const FakeCoordinator& coordinator, const std::string& target) {
  for (const FakeRequest& request : coordinator.requests()) {
    if (request.target == target) return true;
  }
  return false;
}

// ---- drains

std::string drain(const std::string& fields) {
  return R"({"id":"d3","revision":4,"place":"node-a","jobs_gone":0,)" + fields + "}";
}
const std::string kOpenDrain = drain(
    R"("open":true,"jobs":[{"job":"j1","name":"train","state":"moving","migration":"m4","from":"node-a:0","to":"node-b:0"}])");
std::string ended_drain(const std::string& result, int code, const std::string& state = "moved") {
  return drain(R"("open":false,"result":")" + result + R"(","exit_code":)" + std::to_string(code) +
               R"(,"jobs":[{"job":"j1","name":"train","state":")" + state +
               R"(","from":"node-a:0","to":"node-b:0","downtime_ms":12.5}])");
}

TEST(DrainCommands, DrainWaitsForTheResultAndReturnsItsExitCode) {
  for (const auto& [result, code] :
       {std::pair("empty", 0), std::pair("incomplete", 1), std::pair("deadline", 2), std::pair("empty", 3)}) {
    FakeCoordinator coordinator([&](const FakeRequest& request) {
      return json(request.method == "POST" ? kOpenDrain : ended_drain(result, code));
    });
    const Ended ended = run(coordinator.home(), {"drain", "node-a", "--deadline", "1500us", "--parallel", "3",
                                                 "--fallback", "restore", "--reason", "driver"});
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_TRUE(has(ended.out, "j1  train  moved  node-a:0  node-b:0")) << ended.out;
    EXPECT_EQ(
        Json::parse(coordinator.requests().at(0).body),
        Json::parse(
            R"({"place":"node-a","deadline_ms":2,"parallel":3,"fallback":"restore","reason":"driver"})"));
    EXPECT_EQ(coordinator.requests().at(1).target, "/v1/drains/d3/watch?since=0&timeout_ms=30000");
  }
}

TEST(DrainCommands, ATerminalShowsAScreenThatIsRedrawnAndRemoved) {
  std::atomic<int> asked{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.starts_with("/v1/migrations?")) return json(sample_migrations().dump());
    Json drain = sample_open_drain();
    drain["exit_code"] = 1;
    if (has(request.target, "/watch") && ++asked == 2) drain["jobs"][1]["state"] = "moved";
    if (asked == 3) drain["open"] = false;
    return json(drain.dump());
  });
  const Ended ended = run(coordinator.home(), {"drain", "node-b"}, {.terminal = true});
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_TRUE(has(ended.err, "] 40%  1 of 4 gone, 2 moving, 1 blocked")) << ended.err;
  EXPECT_TRUE(has(ended.err, "m15-k3fa  big > node-c:1  62%")) << ended.err;
  EXPECT_TRUE(has(ended.err, "\x1b[3A\rd5-k3fa node-b")) << ended.err;
  EXPECT_TRUE(has(ended.err, "] 50%  2 of 4 gone, 1 moving, 1 blocked")) << ended.err;
  EXPECT_TRUE(ended.err.ends_with("\x1b[2A\x1b[J")) << ended.err;
  EXPECT_TRUE(has(ended.out, "d5-k3fa: node-b is not empty")) << ended.out;
  EXPECT_TRUE(has(coordinator.requests().at(1).target, "&timeout_ms=1000"));
  asked = 0;
  const Ended pipe = run(coordinator.home(), {"drain", "node-b"});
  EXPECT_TRUE(has(pipe.err, "d5-k3fa big (j12-k3fa) moving  node-b:0 -> node-c:1\n")) << pipe.err;
  EXPECT_FALSE(has(pipe.err, "\x1b")) << pipe.err;
}

TEST(DrainCommands, ControlCLeavesTheDrainRunning) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (has(request.target, "/watch")) ::kill(::getpid(), SIGINT);
    return json(kOpenDrain);
  });
  const Ended ended = run(coordinator.home(), {"drain", "node-a"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_TRUE(has(ended.err, "`gpumigrate drains d3 --watch` shows its progress")) << ended.err;
  EXPECT_FALSE(asked(coordinator, "/v1/drains/d3/cancel"));
}

TEST(DrainCommands, DisconnectionMakesTheOutcomeUnknown) {
  FakeCoordinator later([](const FakeRequest& request) {
    return has(request.target, "/watch") ? FakeAnswer{.hang_up = true} : json(kOpenDrain);
  });
  const Ended lost = run(later.home(), {"drain", "node-a"});
  EXPECT_EQ(lost.code, 6);
  EXPECT_TRUE(has(lost.err, "`gpumigrate drains d3 --watch` asks again")) << lost.err;
  FakeCoordinator at_once([](const FakeRequest&) { return FakeAnswer{.hang_up = true}; });
  const Ended never = run(at_once.home(), {"drain", "node-a"});
  EXPECT_EQ(never.code, 6);
  EXPECT_TRUE(has(never.err, "`gpumigrate drains` shows whether node-a is being drained")) << never.err;
}

TEST(DrainCommands, ControlCBeforeTheAnswerNamesTheCommandToQueryTheDrain) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    ::kill(::getpid(), SIGINT);
    return FakeAnswer{.silent = true};
  });
  const Ended ended = run(coordinator.home(), {"drain", "node-a"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_TRUE(has(ended.err, "`gpumigrate drains` shows whether")) << ended.err;
}

TEST(DrainCommands, DrainsAreShownWatchedAndCancelled) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (has(request.target, "/watch") || has(request.target, "/cancel"))
      return json(ended_drain("cancelled", 2));
    return json(request.target == "/v1/drains" ? "[" + kOpenDrain + "]" : kOpenDrain);
  });
  EXPECT_TRUE(has(run(coordinator.home(), {"drains"}).out, "d3  node-a  running"));
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"drains", "d3", "-o", "json"}).out),
            Json::parse(kOpenDrain));
  EXPECT_EQ(run(coordinator.home(), {"drains", "d3", "--watch"}).code, 2);
  EXPECT_EQ(run(coordinator.home(), {"drains", "d3", "--cancel", "--reason", "later"}).code, 0);
  EXPECT_EQ(coordinator.requests().back().body, R"({"reason":"later"})");
}

TEST(DrainCommands, InvalidValuesAreRefusedWithoutARequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json("{}"); });
  const std::vector<std::vector<std::string>> lines = {{"drain"},
                                                       {"drain", "node-a", "--deadline", "soon"},
                                                       {"drain", "node-a", "--parallel", "0"},
                                                       {"drain", "node-a", "--fallback", "hope"},
                                                       {"drains", "d3", "--reason", "nothing is cancelled"},
                                                       {"drains", "d3", "--watch", "--cancel"},
                                                       {"cordon"},
                                                       {"policy", "pause"},
                                                       {"policy"}};
  for (const auto& line : lines) EXPECT_EQ(run(coordinator.home(), line).code, 64) << line.back();
  EXPECT_TRUE(coordinator.requests().empty());
}

TEST(DrainCommands, CordonsReportTheirOwner) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target == "/v1/cordon")
      return json(R"({"place":"node-a","owner":"operator","reason":"new driver"})");
    return json(
        R"({"place":"node-a","cleared":[{"place":"node-a","owner":"health","reason":"Xid 79","since":"noon"}],
            "left":[{"place":"node-a:1","owner":"operator","reason":null}]})");
  });
  EXPECT_EQ(run(coordinator.home(), {"cordon", "node-a", "--reason", "new driver"}).out,
            "node-a is cordoned by operator: new driver\n");
  EXPECT_EQ(Json::parse(coordinator.requests().at(0).body),
            Json::parse(R"({"place":"node-a","reason":"new driver"})"));
  EXPECT_EQ(run(coordinator.home(), {"uncordon", "node-a"}).out,
            "removed: node-a is cordoned by health: Xid 79 since noon\n"
            "remains: node-a:1 is cordoned by operator (`gpumigrate uncordon node-a:1` removes it)\n");
}

// ---- policy

TEST(PolicyCommands, StoppedPolicyNamesTheResumeCommand) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(R"({"breaker":{"open":true,"since":"noon","reason":"20 evacuations"},"paused":["node-b"]})");
  });
  const Ended paused = run(coordinator.home(), {"policy", "pause", "node-b", "--reason", "driver"});
  EXPECT_EQ(paused.code, 0) << paused.err;
  EXPECT_TRUE(has(paused.out, "STOPPED since noon: 20 evacuations (`gpumigrate policy reset-breaker`)"))
      << paused.out;
  EXPECT_TRUE(has(paused.out, "`gpumigrate policy resume node-b`")) << paused.out;
  run(coordinator.home(), {"policy", "resume", "node-b"});
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"policy", "reset-breaker", "-o", "json"}).out)["paused"][0],
            "node-b");
  const auto requests = coordinator.requests();
  EXPECT_EQ(requests.at(0).target, "/v1/policy/pause");
  EXPECT_EQ(Json::parse(requests.at(0).body), Json::parse(R"({"node":"node-b","reason":"driver"})"));
  EXPECT_EQ(requests.at(1).target, "/v1/policy/resume");
  EXPECT_EQ(requests.at(2).target, "/v1/policy/reset-breaker");
}

// ---- certificates and nodes

TEST(DenialCommands, DenialsNameTheNodeOrTheCertificate) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.method == "GET")
      return json(
          R"([{"serial":null,"of":"node node-b","reason":"lost","ends":null,"denied":"2026-01-01T00:00:00.000Z"},
                      {"serial":"0A","of":"","reason":"","ends":"2026-02-01T00:00:00.000Z","denied":"2026-01-02T00:00:00.000Z"}])");
    return json(has(request.body, "node") ? R"({"node":"node-b"})" : R"({"serial":"0A"})");
  });
  EXPECT_EQ(run(coordinator.home(), {"cluster", "allow", "--node", "node-b"}).out,
            "Node node-b is allowed again\n");
  EXPECT_EQ(run(coordinator.home(), {"cluster", "allow", "--serial", "0A"}).out,
            "Certificate 0A is allowed again\n");
  const Ended denied = run(coordinator.home(), {"cluster", "denied"});
  EXPECT_TRUE(has(denied.out, "-       node node-b  -                 2026-01-01T00:00  lost\n"))
      << denied.out;
  EXPECT_TRUE(has(denied.out, "0A                   2026-02-01T00:00  2026-01-02T00:00")) << denied.out;
}

TEST(NodeCommands, RemovalReportsLostJobsAndAFailedFence) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target.ends_with("/add")) return json(R"({"node":"node-b"})");
    return json(has(request.target, "node-c")
                    ? R"({"node":"node-c","fenced":false,"lost":["j1","j2"],"fence_problem":"exit status 1"})"
                    : R"({"node":"node-b","fenced":false,"lost":[]})");
  });
  EXPECT_EQ(run(coordinator.home(), {"node", "rm", "node-b"}).out, "Node node-b is removed\n");
  EXPECT_EQ(
      run(coordinator.home(), {"node", "rm", "node-c", "--force"}).out,
      "Node node-c is removed; its lost jobs: j1, j2; fencing it failed: exit status 1 (before you restore "
      "them, confirm that nothing runs there: `gpumigrate node rm node-c --force --fenced`)\n");
  EXPECT_TRUE(has(run(coordinator.home(), {"node", "add", "node-b"}).out, "Node node-b may join again"));
}

// ---- rebalance

std::string rebalance(const std::string& state) {
  return R"({"state":")" + state + R"(","revision":1,"freed":["node-a:0"],"free_before":0,"free_after":1,
      "exhaustive":true,"fixed":[],"moves":[{"job":"j1","name":"train","from":"node-a:0","to":"node-b:0",
      "needed_bytes":1,"state":"moving","migration":"m4","reason":"frees node-a:0","error":null}]})";
}

TEST(RebalanceCommands, ControlCStopsFurtherMoves) {
  std::atomic<bool> stopped{false};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.ends_with("/stop")) stopped = true;
    if (has(request.target, "/watch") && !stopped) ::kill(::getpid(), SIGINT);
    return json(rebalance(stopped && has(request.target, "/watch") ? "stopped" : "running"));
  });
  const Ended ended = run(coordinator.home(), {"rebalance", "--apply"});
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_TRUE(stopped);
}

TEST(RebalanceCommands, AnInterruptedRebalanceHasAnUnknownOutcome) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (has(request.target, "/watch")) ::kill(::getpid(), SIGINT);
    return json(rebalance("running"));
  });
  const Ended ended = run(coordinator.home(), {"rebalance", "--apply"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_TRUE(has(ended.err, "`gpumigrate migrations` shows")) << ended.err;
}

TEST(RebalanceCommands, DisconnectionEndsTheCommandAndIsReported) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    return request.method == "POST" ? json(rebalance("running")) : FakeAnswer{.hang_up = true};
  });
  const Ended ended = run(coordinator.home(), {"rebalance", "--apply"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_TRUE(has(ended.err, "retrying")) << ended.err;
  EXPECT_TRUE(has(ended.err, "`gpumigrate migrations` shows its open moves")) << ended.err;
}

TEST(RebalanceCommands, UndeliveredStopIsNotReportedAsARefusal) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target.ends_with("/stop")) return FakeAnswer{.hang_up = true};
    if (has(request.target, "/watch")) ::kill(::getpid(), SIGINT);
    return json(rebalance("running"));
  });
  EXPECT_EQ(run(coordinator.home(), {"rebalance", "--apply"}, {.patience = std::chrono::hours(1)}).code, 6);
}

TEST(RebalanceCommands, AForgottenRebalanceIsNotReportedAsARefusal) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    return request.method == "POST" ? json(rebalance("running")) : forgotten();
  });
  const Ended ended = run(coordinator.home(), {"rebalance", "--apply"});
  EXPECT_EQ(ended.code, 6);
  EXPECT_TRUE(has(ended.err, "run `gpumigrate rebalance` again")) << ended.err;
}

// ---- images

std::string task(const std::string& verb, const std::string& fields) {
  return R"({"id":"t1","verb":")" + verb + R"(","job":"j3","job_name":"train",)" + fields + "}";
}
constexpr const char* kBegun = R"("open":true,"state":"copying","error":null)";

TEST(ImageCommands, SnapshotWaitsForItsEnd) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.method == "POST") return json(task("snapshot", kBegun), 202);
    return json(
        task("snapshot", R"("open":false,"exit_code":0,"error":null,"image":"j3.v2@node-a","restored":null,
        "report":{"written_bytes":1048576,"state_bytes":1073741824,"pause_ms":12.5,"waited_bytes":2097152})"));
  });
  const Ended ended = run(coordinator.home(), {"snapshot", "train", "--to", "node-b"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.out, "image j3.v2@node-a of train (j3): 1.00 MiB new of 1.00 GiB")) << ended.out;
  EXPECT_TRUE(has(ended.out, "waited for 2.00 MiB")) << ended.out;
  EXPECT_EQ(coordinator.requests().at(0).target, "/v1/jobs/train/snapshot");
  EXPECT_EQ(coordinator.requests().at(0).body, R"({"to":"node-b"})");
  EXPECT_EQ(coordinator.requests().at(1).target, "/v1/tasks/t1?timeout_ms=30000");
}

TEST(ImageCommands, ARestoreThatLostWorkExitsWithThree) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(task("restore", R"("open":false,"exit_code":3,"error":null,
        "restored":{"at":"node-b:0","image":"j3.v2@node-a","incarnation":4,"lost_ms":90000,"note":null})"));
  });
  const Ended ended = run(coordinator.home(), {"restore", "j3.v2@node-a", "--to", "node-b", "--force"});
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_TRUE(has(ended.out, "train (j3) continues at node-b:0 from j3.v2@node-a as incarnation 4"))
      << ended.out;
  EXPECT_TRUE(has(ended.out, "of work is lost")) << ended.out;
  EXPECT_EQ(coordinator.requests().at(0).target, "/v1/jobs/j3/restore");
  EXPECT_EQ(Json::parse(coordinator.requests().at(0).body),
            Json::parse(R"({"image":"j3.v2@node-a","to":"node-b","force":true})"));
}

TEST(ImageCommands, AFailurePrintsOneLineAndReturnsItsExitCode) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(task("suspend",
                     R"("open":false,"exit_code":1,"error":"the checkpoint store is full","restored":null)"));
  });
  const Ended ended = run(coordinator.home(), {"suspend", "train"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.err, "gpumigrate: suspend of train (j3) failed: the checkpoint store is full\n");
  EXPECT_EQ(ended.out, "");
}

TEST(ImageCommands, AnInterruptedForgottenOrLostTaskHasAnUnknownOutcome) {
  FakeCoordinator interrupted([](const FakeRequest& request) {
    if (request.method == "GET") ::kill(::getpid(), SIGINT);
    return json(task("snapshot", kBegun), 202);
  });
  FakeCoordinator restarted([](const FakeRequest& request) {
    return request.method == "GET" ? forgotten() : json(task("snapshot", kBegun), 202);
  });
  FakeCoordinator away([](const FakeRequest& request) {
    return request.method == "GET" ? FakeAnswer{.hang_up = true} : json(task("snapshot", kBegun), 202);
  });
  for (const FakeCoordinator* coordinator : {&interrupted, &restarted, &away}) {
    const Ended ended = run(coordinator->home(), {"snapshot", "train"});
    EXPECT_EQ(ended.code, 6);
    EXPECT_TRUE(has(ended.err, "`gpumigrate describe train` shows the job")) << ended.err;
  }
}

TEST(ImageCommands, RequestWithoutAnAnswerNamesTheCommandToQueryTheTask) {
  FakeCoordinator hangs_up([](const FakeRequest&) { return FakeAnswer{.hang_up = true}; });
  FakeCoordinator silent([](const FakeRequest&) {
    ::kill(::getpid(), SIGINT);
    return FakeAnswer{.silent = true};
  });
  for (const FakeCoordinator* coordinator : {&hangs_up, &silent}) {
    const Ended ended = run(coordinator->home(), {"restore", "train"});
    EXPECT_EQ(ended.code, 6);
    EXPECT_TRUE(has(ended.err, "show whether the restore has begun")) << ended.err;
  }
}

TEST(ImageCommands, CostOfProtectionIsPrintedBeforeTheStart) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(R"({"job":"j3","every_ms":30000,"keep":2,"note":"each one pauses the job"})");
  });
  const Ended ended = run(coordinator.home(), {"protect", "train", "--every", "30s"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "gpumigrate: each one pauses the job\n");
  ASSERT_EQ(coordinator.requests().size(), 2U);
  EXPECT_EQ(Json::parse(coordinator.requests().at(0).body)["dry_run"], true);
  EXPECT_EQ(Json::parse(coordinator.requests().at(1).body)["dry_run"], false);
  EXPECT_EQ(Json::parse(coordinator.requests().at(1).body)["every_ms"], 30000);
  run(coordinator.home(), {"protect", "train", "--every", "30s", "--dry-run"});
  EXPECT_EQ(coordinator.requests().size(), 3U);
}

TEST(ImageCommands, EndOfAProtectionIsConfirmedOnOneLine) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(R"({"job":"j3"})"); });
  EXPECT_EQ(run(coordinator.home(), {"unprotect", "train"}).out,
            "job j3 is no longer protected; its images are kept\n");
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"unprotect", "train", "-o", "json"}).out)["job"], "j3");
}

TEST(ImageCommands, ImagesAreListedAndRemoved) {
  const std::string images =
      R"([{"id":"j3.v2@node-a","job_name":"train","age_ms":1000,"state_bytes":1073741824,"new_bytes":1,"damaged":false,"readable":false},
          {"id":"j3.v1@node-a","job_name":"train","damaged":true,"readable":true}])";
  FakeCoordinator coordinator([&](const FakeRequest&) { return json(images); });
  const Ended table = run(coordinator.home(), {"images"});
  EXPECT_TRUE(has(table.out, "out of reach")) << table.out;
  EXPECT_TRUE(has(table.out, "damaged")) << table.out;
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"images", "-o", "json"}).out), Json::parse(images));
  const Ended removed = run(coordinator.home(), {"images", "rm", "j3.v1@node-a", "--force"});
  EXPECT_EQ(removed.code, 0) << removed.err;
  EXPECT_EQ(removed.out, "image j3.v1@node-a is removed\n");
  EXPECT_EQ(coordinator.requests().back().target, "/v1/images/j3.v1%40node-a/remove");
  EXPECT_EQ(coordinator.requests().back().body, R"({"force":true})");
}

TEST(ImageCommands, JobNameSelectsTheImageOfTheJob) {
  const std::string images =
      R"([{"id":"j3.v1@node-a","job":"j3","job_name":"train","version":1,"sequence":1},
          {"id":"j3.v2@node-a","job":"j3","job_name":"train","version":2,"sequence":2},
          {"id":"j3.v2@node-b","job":"j3","job_name":"train","version":2,"sequence":2},
          {"id":"j3.v3@/mnt","job":"j3","job_name":"train","version":3,"sequence":3},
          {"id":"j1.v1@node-a","job":"j1","job_name":"old","version":1,"sequence":4},
          {"id":"j2.v1@node-a","job":"j2","job_name":"old","version":1,"sequence":5}])";
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.method == "GET") return json(images);
    return json(R"({"verb":"restore","job":"j3","job_name":"train","open":false,"exit_code":0})");
  });
  EXPECT_EQ(run(coordinator.home(), {"images", "rm", "train"}).out, "image j3.v3@/mnt is removed\n");
  EXPECT_EQ(run(coordinator.home(), {"images", "rm", "j3#1"}).out, "image j3.v1@node-a is removed\n");
  EXPECT_EQ(coordinator.requests().back().target, "/v1/images/j3.v1%40node-a/remove");
  EXPECT_EQ(run(coordinator.home(), {"restore", "train#1"}).code, 0);
  EXPECT_EQ(coordinator.requests().back().target, "/v1/jobs/j3/restore");
  EXPECT_EQ(Json::parse(coordinator.requests().back().body)["image"], "j3.v1@node-a");
  const std::size_t asked = coordinator.requests().size();
  const Ended copies = run(coordinator.home(), {"restore", "train#2"});
  EXPECT_EQ(copies.code, 5);
  EXPECT_EQ(copies.err,
            "gpumigrate: \"train#2\" names several images, use the id of one: j3.v2@node-a, j3.v2@node-b\n");
  EXPECT_TRUE(has(run(coordinator.home(), {"images", "rm", "old"}).err, "j1.v1@node-a, j2.v1@node-a"));
  EXPECT_EQ(run(coordinator.home(), {"images", "rm", "train#9"}).code, 5);
  for (std::size_t i = asked; i < coordinator.requests().size(); i++)
    EXPECT_EQ(coordinator.requests()[i].method, "GET");
}

// ---- other operations

TEST(Following, AnInterruptedAbortHasAnUnknownOutcome) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (has(request.target, "/watch")) ::kill(::getpid(), SIGINT);
    return json(R"({"id":"m7","revision":4,"state":"precopy","open":true})");
  });
  EXPECT_EQ(run(coordinator.home(), {"abort", "m7"}).code, 6);
}

TEST(Following, TwoByteControlCharactersDoNotReachTheTerminal) {
  FakeCoordinator coordinator(
      [](const FakeRequest&) { return json(R"([{"id":"j1","name":"a\u009b2Jb\u00e9"}])"); });
  EXPECT_TRUE(has(run(coordinator.home(), {"jobs"}).out, "a?2Jb\xc3\xa9"));
}

TEST(Logs, LogsEndEvenIfTheJobWritesFasterThanTheClientReads) {
  unsigned asked = 0;
  FakeCoordinator coordinator([&asked](const FakeRequest&) {
    ++asked;
    FakeAnswer answer = json("step\n");
    answer.headers = {{"X-Next-Offset", std::to_string(asked * 5)}, {"X-Incarnation", "1"}};
    answer.hang_up = asked > 100;
    return answer;
  });
  const Ended ended = run(coordinator.home(), {"logs", "job"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_LE(asked, 10U);
}

}  // namespace
}  // namespace ckpt::cli
