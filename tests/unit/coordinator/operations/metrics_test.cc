// SPDX-License-Identifier: Apache-2.0
// Tests of GET /metrics of a coordinator over real sockets. The agents speak the control messages and do
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "libckpt/base/fd.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    a_ = std::make_unique<FakeAgent>("node-a", cluster_.agent_address(), cluster_.agent_token());
    b_ = std::make_unique<FakeAgent>("node-b", cluster_.agent_address(), cluster_.agent_token());
  }
  void start_nodes() {
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
  }
  void run_job() {
    const auto answer =
        cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":"train"})");
    ASSERT_EQ(answer.status, 201U) << answer.body;
  }
  void migrate(const std::string& body = R"({"to":"node-b"})") {
    ASSERT_EQ(cluster_.post("/v1/jobs/train/migrate", body).status, 202U);
    cluster_.wait_for_event("migration-ended");
  }
  std::string page() {
    const auto answer = cluster_.get("/metrics");
    EXPECT_EQ(answer.status, 200U) << answer.body;
    return answer.body;
  }
  unsigned status_with(const std::string& token) {
    return request(cluster_.api_address(), token, "GET", "/metrics").status;
  }
  // Returns the value of the series with this name and these labels.
  double value(const std::string& series) {
    const std::string text = page();
    const auto at = text.find("\n" + series + " ");
    EXPECT_NE(at, std::string::npos) << series;
    return at == std::string::npos ? 0 : std::stod(text.substr(at + series.size() + 2));
  }
  // Checks that the value is in seconds since 1970, neither in milliseconds nor since the machine's start.
  static bool is_unix_time(double seconds) { return seconds > 1e9 && seconds < 1e10; }
  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

TEST_F(MetricsTest, MetricsTokenGrantsAccessOnlyToMetrics) {
  const std::string path = cluster_.folder() + "/coordinator/metrics-token";
  std::string token = read_file(path, 4096).value();
  token.pop_back();  // removes the end of the line
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(status_with(token), 200U);
  EXPECT_EQ(status_with(cluster_.token()), 200U);
  EXPECT_EQ(status_with(cluster_.agent_token()), 401U);
  EXPECT_EQ(status_with("no-token"), 401U);
  EXPECT_EQ(request(cluster_.api_address(), token, "GET", "/v1/status").status, 401U);
}

TEST_F(MetricsTest, UserOfTheCoordinatorProcessNeedsNoToken) {
  EXPECT_EQ(status_with(""), 200U);
  EXPECT_EQ(request(cluster_.api_address(), "", "GET", "/v1/status").status, 200U);
}

TEST_F(MetricsTest, MetricsNeedNoTokenIfConfigured) {
  cluster_.stop();
  cluster_.settings().metrics_without_token = true;
  cluster_.start();
  EXPECT_EQ(status_with("no-token"), 200U);
  EXPECT_EQ(request(cluster_.api_address(), "no-token", "GET", "/v1/status").status, 401U);
}

TEST_F(MetricsTest, NodesAndGpusAreShown) {
  b_->inventory.gpus[0].healthy = false;
  b_->inventory.gpus[0].model = "model \xff";
  b_->inventory.gpus[0].free_bytes = 77;
  start_nodes();
  EXPECT_THAT(page(), HasSubstr("gpumigrate_node_ready{node=\"node-b\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_memory_total_bytes{node=\"node-a\",gpu=\"0\"} 8589934592\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_memory_free_bytes{node=\"node-b\",gpu=\"0\"} 77\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_healthy{node=\"node-a\",gpu=\"0\"} 1\n"));
  EXPECT_TRUE(is_unix_time(value("gpumigrate_agent_heartbeat_timestamp_seconds{node=\"node-a\"}")));
  EXPECT_TRUE(is_unix_time(value("process_start_time_seconds")));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_healthy{node=\"node-b\",gpu=\"0\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("UUID=\"GPU-node-b\",modelName=\"model ?\"} 1\n"));
  b_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_THAT(page(), HasSubstr("gpumigrate_node_ready{node=\"node-b\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_node_ready{node=\"node-a\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_events_total{kind=\"node-lost\"} 1\n"));
}

TEST_F(MetricsTest, JobsAreShown) {
  start_nodes();
  run_job();
  EXPECT_THAT(page(), HasSubstr("gpumigrate_jobs{state=\"running\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_jobs{state=\"exited\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_jobs{node=\"node-a\",gpu=\"0\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_job_bytes{node=\"node-a\",gpu=\"0\"} 1048576\n"));
  EXPECT_THAT(page(), Not(HasSubstr("train")));
  a_->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  EXPECT_THAT(page(), HasSubstr("gpumigrate_jobs{state=\"running\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_jobs{state=\"exited\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_gpu_jobs{node=\"node-a\",gpu=\"0\"} 0\n"));
}

// The fake sides' reports add up to 8 ms.
TEST_F(MetricsTest, AMigrationIsMeasured) {
  start_nodes();
  run_job();
  migrate();
  const std::string text = page();
  for (const char* line : {
           "gpumigrate_migrations_total{mode=\"cooperative\",result=\"done\",strategy=\"live\"} 1",
           "gpumigrate_migrations_total{mode=\"cooperative\",result=\"done\",strategy=\"stop_copy\"} 0",
           "gpumigrate_migrations_in_progress{state=\"preparing\"} 0",
           "gpumigrate_downtime_seconds_count{mode=\"cooperative\",strategy=\"live\"} 1",
           "gpumigrate_downtime_seconds_sum{mode=\"cooperative\",strategy=\"live\"} 0.008",
           "gpumigrate_downtime_seconds_bucket{mode=\"cooperative\",strategy=\"live\",le=\"0.005\"} 0",
           "gpumigrate_downtime_seconds_bucket{mode=\"cooperative\",strategy=\"live\",le=\"0.01\"} 1",
           "gpumigrate_downtime_piece_seconds_sum{piece=\"final\"} 0.002",
           "gpumigrate_downtime_piece_seconds_sum{piece=\"commit\"} 0.002",
           "gpumigrate_downtime_piece_seconds_count{piece=\"host\"} 1",
           "gpumigrate_migration_duration_seconds_count{mode=\"cooperative\",strategy=\"live\"} 1",
           "gpumigrate_migration_duration_seconds_bucket{mode=\"cooperative\",strategy=\"live\",le=\"3600\"} "
           "1",
           "gpumigrate_setup_seconds_count{mode=\"cooperative\"} 1",
           "gpumigrate_sent_bytes_total{kind=\"chunks\"} 3000000",
           "gpumigrate_sent_bytes_total{kind=\"host\"} 4000",
           "gpumigrate_sent_bytes_total{kind=\"context\"} 5000",
           "gpumigrate_wire_bytes_total 2000000",
           "gpumigrate_resent_chunks_total 3",
           "gpumigrate_rounds_sum 2",
           "gpumigrate_dirty_bytes_total 524288",
           "gpumigrate_final_bytes_total 262144",
           "gpumigrate_events_total{kind=\"migration-ended\"} 1",
       })
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
}

TEST_F(MetricsTest, LazyMemoryIsMeasuredOnceAfterTheMigration) {
  start_nodes();
  run_job();
  migrate();
  EXPECT_EQ(value("gpumigrate_memory_follows_seconds_count"), 0);
  b_->post([this] {
    wire::TargetReport report;
    report.migration = 1;
    report.memory_follows_bytes = std::uint64_t{1} << 30;
    report.memory_follows_ns = 2'500'000'000;
    b_->send(report);
    report.memory_follows_ns = 9'000'000'000;
    b_->send(report);
    b_->change(1, 2, wire::JobPhase::kExited, 0);
  });
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(value("gpumigrate_events_total{kind=\"memory-arrived\"}"), 1);
  EXPECT_EQ(value("gpumigrate_memory_follows_seconds_count"), 1);
  EXPECT_EQ(value("gpumigrate_memory_follows_seconds_sum"), 2.5);
  const auto report = cluster_.get("/v1/migrations/m1").json()["report"];
  EXPECT_EQ(report["memory_follows_ms"], 2500.0);
  EXPECT_EQ(report["memory_follows_bytes"], std::uint64_t{1} << 30);
  EXPECT_EQ(report["downtime_ms"], 8.0);
}

TEST_F(MetricsTest, OpenMigrationIsShownAndFailedMigrationIsCounted) {
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const json begun =
      cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b","strategy":"stop-copy"})").json();
  const std::string open = page();
  EXPECT_THAT(open, HasSubstr("gpumigrate_migrations_in_progress{state=\"preparing\"} 1\n"));
  EXPECT_TRUE(is_unix_time(value("gpumigrate_oldest_open_migration_timestamp_seconds")));
  EXPECT_THAT(open, HasSubstr("gpumigrate_jobs{state=\"migrating\"} 1\n"));
  cluster_.post("/v1/migrations/" + begun["id"].get<std::string>() + "/abort");
  cluster_.wait_for_event("migration-ended");
  const std::string closed = page();
  EXPECT_THAT(closed, HasSubstr("result=\"interrupted\",strategy=\"stop_copy\"} 1\n"));
  EXPECT_THAT(closed, HasSubstr("gpumigrate_migrations_in_progress{state=\"preparing\"} 0\n"));
  EXPECT_THAT(
      closed,
      HasSubstr("gpumigrate_downtime_seconds_count{mode=\"cooperative\",strategy=\"stop_copy\"} 0\n"));
  EXPECT_THAT(closed, HasSubstr("gpumigrate_setup_seconds_count{mode=\"cooperative\"} 0\n"));
  EXPECT_THAT(
      closed,
      HasSubstr(
          "gpumigrate_migration_duration_seconds_count{mode=\"cooperative\",strategy=\"stop_copy\"} 0\n"));
  EXPECT_THAT(closed, Not(HasSubstr("gpumigrate_oldest_open_migration_timestamp_seconds")));
}

TEST_F(MetricsTest, RemainingBytesAreShownDuringTheCopy) {
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const std::string id =
      cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"].get<std::string>();
  wire::MigrationProgress progress;
  progress.remaining_bytes = 500;
  progress.dirty_bytes_per_second = 60;
  progress.throughput_bytes_per_second = 7;
  (void)a_->wait_for_plan();
  a_->set_progress(progress);
  json migration;
  do {
    migration = cluster_
                    .get("/v1/migrations/" + id + "/watch?timeout_ms=30000&since=" +
                         (migration.is_null() ? "0" : std::to_string(migration["revision"].get<int>())))
                    .json();
  } while (migration["progress"].is_null());
  EXPECT_EQ(value("gpumigrate_remaining_bytes"), 500);
  EXPECT_EQ(value("gpumigrate_dirty_bytes_per_second"), 60);
  EXPECT_EQ(value("gpumigrate_throughput_bytes_per_second"), 7);
  cluster_.post("/v1/migrations/" + id + "/abort");
  cluster_.wait_for_event("migration-ended");
  EXPECT_EQ(value("gpumigrate_remaining_bytes"), 0);
}

TEST_F(MetricsTest, ApiAnswersAreCountedByStatusClass) {
  cluster_.get("/v1/status");
  cluster_.get("/v1/jobs/none");
  EXPECT_THAT(page(), HasSubstr("gpumigrate_api_answers_total{code=\"4xx\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_api_answers_total{code=\"2xx\"} 1\n"));
}

}  // namespace
}  // namespace ckpt::coordinator::test
