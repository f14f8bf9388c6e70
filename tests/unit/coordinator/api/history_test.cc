// SPDX-License-Identifier: Apache-2.0
// Tests of a coordinator with a long history. The cost of an operation does not grow with the history, and
// old entries are removed.
#include <gtest/gtest.h>

#include "coordinator/daemon/coordinator.h"
#include "libckpt/base/clock.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"
#include "tests/unit/coordinator/support/past.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMigrations = 5'000;
constexpr std::uint64_t kJobs = 1'000;
constexpr std::uint64_t kEvents = 20'000;

struct Cost {
  std::uint64_t visited = 0;     // the number of visited table entries
  std::uint64_t statements = 0;  // the number of SQL statements
};

class HistoryTest : public ::testing::Test {
 protected:
  void start() {
    cluster_.start();
    agents_.clear();
    for (const char* name : {"node-a", "node-b"}) {
      agents_.push_back(std::make_unique<FakeAgent>(name, cluster_.agent_address(), cluster_.agent_token()));
      agents_.back()->start();
    }
    for (const char* name : {"node-a", "node-b"}) wait_for_node(name);
  }
  void stop() {
    agents_.clear();
    cluster_.stop();
  }
  void wait_for_node(const std::string& name) {
    wait_until([&] {
      for (const json& node : cluster_.get("/v1/nodes").json())
        if (node["name"] == name && node["state"] == "ready") return true;
      return false;
    });
  }
  template <class Condition>
  void wait_until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  void write_history(std::uint64_t jobs = kJobs, std::uint64_t migrations = kMigrations,
                     std::uint64_t events = kEvents) {
    Past past(jobs, migrations, events);
    past.first_event_ms = past.last_event_ms = wall_clock_ms();
    const auto written = write_past(cluster_.config().folder(), past);
    ASSERT_TRUE(written) << written.error().to_string();
  }
  std::string run_job() {
    const auto answer = cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a"})");
    EXPECT_EQ(answer.status, 201U) << answer.body;
    return answer.json()["id"];
  }
  // Starts a migration and waits until it is closed.
  std::string migrate(const std::string& job) {
    const auto answer = cluster_.post("/v1/jobs/" + job + "/migrate");
    EXPECT_EQ(answer.status, 202U) << answer.body;
    const std::string id = answer.json().value("id", "");
    wait_until([&] { return !cluster_.get("/v1/migrations/" + id).json().value("open", true); });
    return id;
  }
  Cost cost() {
    Cost now;
    cluster_.on_io([&](Coordinator& c, const auto&) {
      now.visited = c.jobs().visited() + c.migrations().visited();
      now.statements = c.store().database().statements();
    });
    return now;
  }
  std::int64_t rows(const char* table) {
    std::int64_t count = 0;
    cluster_.on_io([&](Coordinator& c, const auto&) {
      auto statement = c.store().database().prepare(std::string("SELECT COUNT(*) FROM ") + table).value();
      if (statement.next()) count = statement.integer(0);
    });
    return count;
  }

  Cluster cluster_;
  std::vector<std::unique_ptr<FakeAgent>> agents_;
};

TEST_F(HistoryTest, CostOfAnOperationIsIndependentOfTheHistorySize) {
  Config& config = cluster_.config();
  config.ended_jobs_kept = config.closed_migrations_kept = config.events_kept = 1'000'000;
  config.history_kept_days = 0;
  write_history();
  start();
  const std::string job = run_job();
  const Cost before = cost();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","dry_run":true})").status, 200U);
    EXPECT_EQ(cluster_.post("/v1/jobs/" + job + "/migrate", R"({"dry_run":true})").status, 200U);
    EXPECT_EQ(cluster_.get("/v1/jobs/" + job).status, 200U);
    EXPECT_EQ(cluster_.get("/v1/jobs/old").json()["id"], "j1000");
    EXPECT_EQ(cluster_.get("/v1/gpus").status, 200U);
    EXPECT_EQ(cluster_.get("/v1/status").json()["jobs_live"], 1);
    for (const auto& agent : agents_) agent->set_free((std::uint64_t{1} << 30) + static_cast<unsigned>(i));
    migrate(job);
  }
  const Cost after = cost();
  // There is one live job and at most one open migration, so each query visits a few entries.
  EXPECT_LT(after.visited - before.visited, kJobs);
  EXPECT_LT(after.statements - before.statements, kJobs);
  EXPECT_EQ(rows("migrations"), static_cast<std::int64_t>(kMigrations) + 3);
  EXPECT_EQ(rows("jobs"), static_cast<std::int64_t>(kJobs) + 1);
}

// The same cost in processor time is reported by tools/measure-scale.
TEST_F(HistoryTest, InventoryVisitsOnlyLiveJobsAndReadsNoStore) {
  Config& config = cluster_.config();
  config.ended_jobs_kept = config.closed_migrations_kept = config.events_kept = 1'000'000;
  config.history_kept_days = 0;
  write_history(kJobs, 2'000, 10'000);
  start();
  constexpr unsigned kRunning = 4;
  for (unsigned i = 0; i < kRunning; ++i) run_job();
  constexpr unsigned kRounds = 50;
  const Cost before = cost();
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (const auto& agent : agents_) agent->set_free(std::uint64_t{round} << 20);
  }
  wait_until([&] {
    for (const json& gpu : cluster_.get("/v1/gpus").json())
      if (gpu["free_bytes"] != std::uint64_t{kRounds} << 20) return false;
    return true;
  });
  const Cost after = cost();
  EXPECT_LT(after.visited - before.visited, kRounds * agents_.size() * kRunning * 20);
  EXPECT_LT(after.statements - before.statements, kRounds) << "some for the memory of jobs, once a minute";
}

TEST_F(HistoryTest, HistoryIsTrimmedAndItsIdsAreNotReused) {
  write_history();
  start();
  wait_until([&] { return rows("jobs") == 0 && rows("migrations") == 0 && rows("events") <= 10'100; });
  EXPECT_TRUE(cluster_.get("/v1/jobs").json().empty());
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
  stop();
  start();
  const std::string job = run_job();
  EXPECT_EQ(job, "j1001");
  EXPECT_EQ(migrate(job), "m5001");
}

// The migration's record shows the job at the target, and its journal shows the migration as over. The job's
// own record has not been updated yet.
TEST_F(HistoryTest, JobMatchesItsMigrationAfterACrashBetweenTheirRecords) {
  start();
  const std::string job = run_job();
  migrate(job);
  const json moved = cluster_.get("/v1/jobs/" + job).json();
  EXPECT_EQ(moved["incarnation"], 2) << moved;
  stop();
  {
    Store store = Store::open(cluster_.config().folder() + "/state.db").value();
    Migration m = store.migrations().value().front();
    Job before = store.jobs().value().front();
    before.incarnation = m.base;
    before.segments.resize(1);
    before.ranks.front().place = m.from;
    m.phase = MigrationPhase::kCommitted;
    m.result = MigrationResult::kNone;
    m.settled = false;
    ASSERT_TRUE(store.put(before));
    ASSERT_TRUE(store.put(m));
  }
  cluster_.start();
  const json after = cluster_.get("/v1/jobs/" + job).json();
  EXPECT_EQ(after["incarnation"], 2) << after;
  EXPECT_EQ(after["node"], moved["node"]) << after;
}

TEST_F(HistoryTest, APrunedMigrationIsNotRestoredFromTheJournal) {
  start();
  const std::string job = run_job();
  for (int i = 0; i < 3; ++i) migrate(job);
  const auto settled = [&] {
    bool all = true;
    cluster_.on_io([&](Coordinator& c, const auto&) {
      for (const auto& [id, m] : c.migrations().all()) all = all && m.settled;
    });
    return all;
  };
  wait_until(settled);
  cluster_.on_io([](Coordinator& c, const auto&) { c.migration_runner().prune(Retention(0)); });
  const auto ids = [&] {
    std::vector<std::string> found;
    for (const json& m : cluster_.get("/v1/migrations").json()) found.push_back(m["id"]);
    return found;
  };
  // The newest migration of a job that has not ended is retained.
  EXPECT_EQ(ids(), std::vector<std::string>{"m3"});
  stop();
  start();
  EXPECT_EQ(ids(), std::vector<std::string>{"m3"});
  EXPECT_EQ(cluster_.get("/v1/migrations/m1").status, 404U);
  EXPECT_EQ(cluster_.get("/v1/jobs/" + job).json()["migrations"], json::array({"m3"}));
}

TEST_F(HistoryTest, ListsAreReadPageByPage) {
  start();
  std::vector<std::string> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(run_job());
  for (int i = 0; i < 3; ++i) migrate(jobs[0]);
  const json first = cluster_.get("/v1/jobs?limit=2").json();
  ASSERT_EQ(first["jobs"].size(), 2U);
  EXPECT_EQ(first["next"], "j2");
  const json second = cluster_.get("/v1/jobs?limit=2&after=j2").json();
  ASSERT_EQ(second["jobs"].size(), 1U);
  EXPECT_EQ(second["jobs"][0]["id"], "j3");
  EXPECT_EQ(second["next"], nullptr);
  const json moved = cluster_.get("/v1/migrations?limit=2").json();
  ASSERT_EQ(moved["migrations"].size(), 2U);
  EXPECT_EQ(moved["migrations"][0]["id"], "m3");
  EXPECT_EQ(moved["next"], "m2");
  const json last = cluster_.get("/v1/migrations?limit=2&after=m2").json();
  ASSERT_EQ(last["migrations"].size(), 1U);
  EXPECT_EQ(last["migrations"][0]["id"], "m1");
  EXPECT_EQ(last["next"], nullptr);
  EXPECT_EQ(cluster_.get("/v1/jobs").json().size(), 3U) << "without a limit it is the whole list";
  const json event = cluster_.get("/v1/events?limit=1&after=1").json();
  EXPECT_EQ(event["events"][0]["id"], 2);
  EXPECT_EQ(event["next"], 2);
  EXPECT_EQ(cluster_.get("/v1/jobs?after=j2").status, 400U);
  EXPECT_EQ(cluster_.get("/v1/jobs?limit=2&after=x").status, 400U);
  EXPECT_EQ(cluster_.get("/v1/migrations?limit=1001").status, 400U);
}

}  // namespace
}  // namespace ckpt::coordinator::test
