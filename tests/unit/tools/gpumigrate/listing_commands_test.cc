// SPDX-License-Identifier: Apache-2.0
// Tests lists, their filters and -w, and the output about one job or migration, against a coordinator that
// answers in the form of docs/api.md.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "tests/unit/tools/gpumigrate/run_command.h"
#include "tests/unit/tools/gpumigrate/screen_samples.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/progress.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

constexpr const char* kDrains =
    R"([{"id":"d7","place":"node-b","open":true,"result":null},{"id":"d6","place":"node-a:1","open":false,"result":"empty"},
        {"id":"d5","place":"node-a","open":false,"result":"incomplete"}])";

FakeAnswer sample_answer(const FakeRequest& request) {
  if (request.target.starts_with("/v1/jobs?")) return json(sample_jobs().dump());
  if (request.target.starts_with("/v1/migrations?")) return json(sample_migrations().dump());
  if (request.target.starts_with("/v1/gpus")) return json(sample_gpus().dump());
  if (request.target.starts_with("/v1/nodes")) return json(sample_nodes().dump());
  if (request.target.starts_with("/v1/images?")) return json(sample_images().dump());
  if (request.target == "/v1/drains") return json(kDrains);
  return refusal(404, "not_found", "there is none", 5);
}

TEST(Listing, EndedJobsAreHiddenAndCounted) {
  FakeCoordinator coordinator(sample_answer);
  const Ended live = run(coordinator.home(), {"jobs"});
  EXPECT_FALSE(has(live.out, "exited")) << live.out;
  EXPECT_TRUE(has(live.out, "moving 62%")) << live.out;
  EXPECT_EQ(live.err, "1 ended jobs hidden (-a shows them)\n");
  const Ended all = run(coordinator.home(), {"jobs", "-a"});
  EXPECT_TRUE(has(all.out, "exited 143")) << all.out;
  EXPECT_EQ(all.err, "");
  // The JSON output includes all jobs, for scripts.
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"jobs", "-o", "json"}).out), sample_jobs());
}

TEST(Listing, FiltersApplyToTablesAndJson) {
  FakeCoordinator coordinator(sample_answer);
  const auto names = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    std::string out;
    for (const Json& entry : Json::parse(run(coordinator.home(), arguments).out))
      out += text_of(entry, has_value(entry, "name") ? "name" : "id") + " ";
    return out;
  };
  EXPECT_EQ(names({"jobs", "--node", "node-c"}), "plain ");
  EXPECT_EQ(names({"jobs", "--state", "running,parked"}), "plain low ");
  EXPECT_EQ(names({"jobs", "--name", "*l*", "--node", "node-c:1"}), "plain ");
  EXPECT_EQ(names({"nodes", "--state", "unreachable"}), "node-c ");
  EXPECT_EQ(names({"migrations", "--state", "open,failed"}), "m15-k3fa m3-k3fa ");
  EXPECT_EQ(names({"migrations", "--node", "node-c:1", "--name", "plain"}), "m42-k3fa ");
  EXPECT_EQ(names({"images", "--name", "*l*", "--node", "node-b"}), "j6-k3fa.v1@node-b ");
  EXPECT_EQ(names({"drains", "--node", "node-a"}), "d6 d5 ");
  EXPECT_EQ(names({"drains", "--state", "running,incomplete"}), "d7 d5 ");
  EXPECT_EQ(run(coordinator.home(), {"drains", "d5", "--node", "node-a"}).code, 64);
  EXPECT_TRUE(has(run(coordinator.home(), {"jobs", "--state", "exited"}).out, "exited 143"));
  EXPECT_EQ(run(coordinator.home(), {"gpus", "--node", "node-a"}).out.find("node-b"), std::string::npos);
}

TEST(Listing, UnmatchableFiltersAreRefused) {
  FakeCoordinator coordinator(sample_answer);
  for (const char* list : {"jobs", "nodes", "migrations", "drains"}) {
    const Ended bogus = run(coordinator.home(), {list, "--state", "bogus"});
    EXPECT_EQ(bogus.code, 64) << list;
    EXPECT_TRUE(has(bogus.err, "\"bogus\" is not one of ")) << bogus.err;
  }
  for (const char* list : {"jobs", "gpus", "migrations", "images", "drains"}) {
    const Ended unknown = run(coordinator.home(), {list, "--node", "nope"});
    EXPECT_EQ(unknown.code, 5) << list;
    EXPECT_TRUE(has(unknown.err, "there is no node \"nope\"")) << unknown.err;
    EXPECT_EQ(run(coordinator.home(), {list, "--node", "node-c:7"}).code, 0) << list;
  }
}

TEST(Listing, AFailedMigrationShowsItsError) {
  const api::Migration failed{
      .id = "m4", .reason = "maintenance", .result = "failed", .error = "the disk is full"};
  const api::Migration done{.id = "m5", .reason = "maintenance", .result = "done"};
  EXPECT_TRUE(has(view_migrations({failed}, Layout()), "the disk is full"));
  EXPECT_FALSE(has(view_migrations({failed}, Layout()), "maintenance"));
  EXPECT_TRUE(has(view_migrations({done}, Layout()), "maintenance"));
}

TEST(Listing, UnhealthyGpusAndSilentNodesAreMarked) {
  const Json gpu = {{"node", "node-a"}, {"index", 0}, {"healthy", false}, {"reason", "Xid 79 (cordoned)"}};
  EXPECT_TRUE(has(view_gpus({record::from_answer<api::Gpu>(gpu)}, Layout()), "Xid 79 (cordoned)"));
  const Json silent = {{"node", "node-b"}, {"index", 0}, {"healthy", true}, {"node_silent", true}};
  EXPECT_TRUE(has(view_gpus({record::from_answer<api::Gpu>(silent)}, Layout()), "node silent"));
  Json job = {{"name", "train"}, {"state", "running"}, {"trouble", "node-a:0: Xid 79 (cordoned)"}};
  EXPECT_TRUE(has(view_jobs({record::from_answer<api::Job>(job)}, Layout(), {}), "running (bad GPU)"));
  job["state"] = "stopping";
  EXPECT_FALSE(has(view_jobs({record::from_answer<api::Job>(job)}, Layout(), {}), "node silent"));
  job["silent_node"] = "node-a";
  EXPECT_TRUE(has(view_jobs({record::from_answer<api::Job>(job)}, Layout(), {}), "stopping (node silent)"));
}

TEST(Listing, PauseForecastIsShownFromTheStart) {
  api::Migration migration{
      .strategy = "live", .options = {.max_downtime_ms = 100.0}, .expected_pause_ms = 2700.0};
  EXPECT_EQ(pause_of(migration), "pause ~2.7 s (limit 100 ms)");
  migration.options.max_downtime_ms = 5000.0;
  EXPECT_EQ(pause_of(migration), "pause ~2.7 s");
  migration.expected_pause_ms.reset();
  EXPECT_EQ(pause_of(migration), "pause <=5 s");
}

TEST(Listing, WideOutputShowsAllColumns) {
  FakeCoordinator coordinator(sample_answer);
  EXPECT_FALSE(has(run(coordinator.home(), {"jobs"}).out, "INCARNATION"));
  EXPECT_TRUE(has(run(coordinator.home(), {"jobs", "-o", "wide"}).out, "INCARNATION"));
}

TEST(Listing, ColorsAreShownOnRequest) {
  FakeCoordinator coordinator(sample_answer);
  EXPECT_FALSE(has(run(coordinator.home(), {"jobs"}).out, "\x1b["));
  EXPECT_TRUE(has(run(coordinator.home(), {"jobs", "--color", "always"}).out, "\x1b[32mrunning\x1b[0m"));
}

TEST(Listing, WatchedListIsRedrawnUntilControlC) {
  std::atomic<int> asked{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target.starts_with("/v1/jobs?") && ++asked == 2) ::kill(::getpid(), SIGINT);
    return sample_answer(request);
  });
  const Ended pipe = run(coordinator.home(), {"jobs", "-w"});
  EXPECT_EQ(pipe.code, 0) << pipe.err;
  // The second answer adds no line, since nothing in it is new.
  EXPECT_EQ(std::count(pipe.out.begin(), pipe.out.end(), '\n'), 4) << pipe.out;
  EXPECT_GE(asked, 2);
}

TEST(Listing, WatchOfImagesEndsAtControlC) {
  std::atomic<int> asked{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (++asked == 2) ::kill(::getpid(), SIGINT);
    return sample_answer(request);
  });
  const Ended pipe = run(coordinator.home(), {"images", "-w"});
  EXPECT_EQ(pipe.code, 0) << pipe.err;
  EXPECT_EQ(std::count(pipe.out.begin(), pipe.out.end(), '\n'), 4) << pipe.out;
  EXPECT_GE(asked, 2);
}

TEST(Listing, ScreensFitTheTerminalWidth) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target.starts_with("/v1/health")) return json(sample_health().dump());
    if (request.target.starts_with("/v1/recovery")) return json(sample_recovery().dump());
    if (request.target.starts_with("/v1/rebalance")) return json(sample_rebalance().dump());
    return sample_answer(request);
  });
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"health"}, {"cluster", "recover"}, {"rebalance"}, {"images"}}) {
    const Ended shown = run(coordinator.home(), line, {.columns = 60});
    std::istringstream text(shown.out);
    for (std::string row; std::getline(text, row);) EXPECT_LE(width_of(row), 60U) << row;
    EXPECT_GT(shown.out.size(), 100U) << shown.err;
  }
}

TEST(Listing, WatchWithoutACoordinatorIsRefused) {
  EXPECT_EQ(run("/nonexistent", {"jobs", "-w"}).code, 5);
}

TEST(Listing, OldMigrationsAreHiddenAndCounted) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    Json list = Json::array();
    for (int i = 30; i > 0; i--)
      list.push_back({{"id", "m" + std::to_string(i)}, {"open", i < 3}, {"result", "done"}});
    return json(list.dump());
  });
  const Ended some = run(coordinator.home(), {"migrations"});
  EXPECT_EQ(std::count(some.out.begin(), some.out.end(), '\n'), 23) << some.out;
  EXPECT_EQ(some.err, "8 older migrations hidden (-a shows them)\n");
  EXPECT_TRUE(has(some.out, "\nm1 ")) << some.out;
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"migrations", "-o", "json"}).out).size(), 30U);
}

TEST(Listing, TopPrintsTheClusterOnceToAPipe) {
  FakeCoordinator coordinator(sample_answer);
  const Ended top = run(coordinator.home(), {"top"});
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_TRUE(has(top.out, "gpumigrate: 3 live jobs, 2 GPUs, 1 moves\n")) << top.out;
  EXPECT_TRUE(has(top.out, "node-b > node-c")) << top.out;
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"top", "-o", "json"}).out)["gpus"], sample_gpus());
}

TEST(Listing, DescribeShowsTheLastMovesOrAllMovesOnRequest) {
  std::atomic<int> asked{0};
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    if (request.target == "/v1/jobs/plain") return json(sample_job().dump());
    asked++;
    if (request.target.ends_with("/m42-k3fa")) return json(sample_migrations()[1].dump());
    return refusal(404, "not_found", "it was forgotten", 5);
  });
  const Ended ended = run(coordinator.home(), {"describe", "plain"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(asked.exchange(0), 3 + 1);  // three moves and one page of events
  EXPECT_TRUE(has(ended.out, "moves       5, the newest (-a shows all):")) << ended.out;
  EXPECT_TRUE(has(ended.out, "m42-k3fa  node-c:1 -> node-a:0  214 ms")) << ended.out;
  EXPECT_FALSE(has(ended.out, "runs at")) << ended.out;
  run(coordinator.home(), {"describe", "plain", "-a"});
  EXPECT_EQ(asked, 5 + 1);
}

TEST(Listing, DescribeEndsWithTheNewestEventsOfTheJob) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target == "/v1/jobs/low") return json(sample_jobs()[2].dump());
    if (!request.target.ends_with("&job=j13-k3fa")) return refusal(404, "not_found", "there is none", 5);
    const auto since = static_cast<unsigned>(request.target[std::string("/v1/events?since=").size()] - '0');
    Json events = Json::array();
    for (unsigned id = since + 1; id <= std::min(since + 4, 8U); id++)
      events.push_back({{"id", id},
                        {"time", "2026-01-01T00:00:00.000Z"},
                        {"kind", "job-parked"},
                        {"text", "no " + std::to_string(id)}});
    return json(Json{{"events", events}, {"next", std::min(since + 4, 8U)}}.dump());
  });
  const Ended ended = run(coordinator.home(), {"describe", "low"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(has(ended.out, "no 3\n")) << ended.out;
  EXPECT_TRUE(has(ended.out, " ago  job-parked  no 4\n")) << ended.out;
  EXPECT_TRUE(ended.out.ends_with("no 8\n")) << ended.out;
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"describe", "low", "-o", "json"}).out), sample_jobs()[2]);
}

TEST(Listing, StopAndWaitPrintOneLine) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(sample_jobs()[3].dump()); });
  const std::string line =
      "a-training-with-a-name-that-goes-on-and-on-2026 (j2-k3fa) exited 143, was at node-a:0\n";
  EXPECT_EQ(run(coordinator.home(), {"stop", "j2"}).out, line);
  EXPECT_EQ(run(coordinator.home(), {"wait", "j2"}).out, line);
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"stop", "j2", "-o", "json"}).out), sample_jobs()[3]);
}

TEST(Listing, DescribeOfAnEndedJobDoesNotReportARunningJob) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(sample_jobs()[3].dump()); });
  const Ended ended = run(coordinator.home(), {"describe", "j2"});
  EXPECT_TRUE(has(ended.out, "exited 143, was at node-a:0, started ")) << ended.out;
}

TEST(Listing, SetPrintsTheOldAndTheNewLimit) {
  Json before = sample_migrations()[0];
  before["options"] = {{"bandwidth", 12 << 20}, {"max_downtime_ms", 200.0}};
  Json after = before;
  after["options"] = {{"bandwidth", 40 << 20}, {"max_downtime_ms", 1500.0}};
  FakeCoordinator coordinator(
      [&](const FakeRequest& request) { return json((request.method == "POST" ? after : before).dump()); });
  EXPECT_EQ(run(coordinator.home(), {"set", "m15", "bandwidth", "40MiB/s"}).out,
            "m15-k3fa big: bandwidth 12 → 40 MiB/s\n");
  EXPECT_EQ(run(coordinator.home(), {"set", "m15", "max-downtime", "1500ms"}).out,
            "m15-k3fa big: max-downtime 200 ms → 1.5 s\n");
  EXPECT_EQ(Json::parse(run(coordinator.home(), {"set", "m15", "bandwidth", "40MiB/s", "-o", "json"}).out),
            after);
}

TEST(Listing, HelpOfMigrateNamesTheDefaultLimit) {
  EXPECT_TRUE(has(run("/nonexistent", {"migrate", "--help"}).out, "200ms"));
}

TEST(Listing, SuspendOfAParkedJobReportsThatTheJobIsParked) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(
        R"({"id":"t1","verb":"suspend","job":"j13","job_name":"low","open":false,"exit_code":0,"error":null,
        "image":null,"report":null,"restored":null})");
  });
  EXPECT_EQ(run(coordinator.home(), {"suspend", "low"}).out,
            "low (j13) is parked already; `gpumigrate resume low` continues it\n");
}

TEST(Listing, APauseOfZeroIsShownAsADash) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.method == "GET")
      return json(R"([{"id":"j1.v1@a","job_name":"low","age_ms":5,"pause_ms":0.0,"readable":true}])");
    return json(
        R"({"id":"t1","verb":"suspend","job":"j13","job_name":"low","open":false,"exit_code":0,"error":null,
        "image":"j13.v1@a","restored":null,"report":{"written_bytes":1,"state_bytes":1,"pause_ms":0.0}})");
  });
  EXPECT_TRUE(has(run(coordinator.home(), {"suspend", "low"}).out, "pause -\n"));
  EXPECT_FALSE(has(run(coordinator.home(), {"images"}).out, "0.00 ms"));
}

TEST(Listing, DrainReasonsAreSummarizedOrListedOnRequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(sample_drain().dump()); });
  const Ended sum = run(coordinator.home(), {"drains", "d5"});
  EXPECT_TRUE(has(sum.out, "no GPU: 2 cordoned, 2 full, 2 being drained")) << sum.out;
  EXPECT_TRUE(has(sum.out, "-v shows the reason for each GPU\n")) << sum.out;
  EXPECT_FALSE(has(sum.out, "node-b:1: 0 B free")) << sum.out;
  EXPECT_TRUE(has(run(coordinator.home(), {"drains", "d5", "-v"}).out, "  plain: node-b:1: 0 B free"))
      << sum.out;
}

}  // namespace
}  // namespace ckpt::cli
