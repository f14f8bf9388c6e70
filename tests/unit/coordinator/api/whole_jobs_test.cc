// SPDX-License-Identifier: Apache-2.0
// Tests of the calls for jobs with any number of ranks, and for one of several ranks, over real sockets.
#include <gmock/gmock.h>

#include "tests/unit/coordinator/api/api_fixture.h"

namespace ckpt::coordinator::test {
namespace {

using ::testing::HasSubstr;

class WholeJobsTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    two_nodes();
    a_->log = "of rank 0\n";
    b_->log = "of rank 1\n";
    start_nodes();
  }
  // Starts one rank on node-a and one on node-b. Returns the job.
  json run_ranks(const std::string& name) {
    const auto begun = cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","ranks":2,
        "nodes":["node-a","node-b"],"env":{"MASTER_ADDR":"x","MASTER_PORT":"1"},"name":")" +
                                                     name + "\"}");
    EXPECT_EQ(begun.status, 201U) << begun.body;
    return begun.json();
  }
  HttpAnswer remove(const std::string& job) {
    return request(cluster_.api_address(), cluster_.token(), "DELETE", "/v1/jobs/" + job);
  }
  static void expect_is_for_whole_jobs(const HttpAnswer& answer) {
    expect_error(answer, 501, "refused", 5);
    EXPECT_THAT(answer.body, HasSubstr("ranks.1 is a rank")) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("name the job ranks")) << answer.body;
  }
};

TEST_F(WholeJobsTest, AJobOfOneRankIsShownLikeItsRank) {
  const json job = run_job();
  EXPECT_EQ(job["size"], 1) << job;
  EXPECT_EQ(job["gpus"], json::array({"node-a:0"})) << job;
  EXPECT_EQ(job["communicators"], "overlap") << job;
  EXPECT_EQ(job["gpu"], 0) << job;
  ASSERT_EQ(job["ranks"].size(), 1U) << job;
  const json rank = job["ranks"][0];
  EXPECT_EQ(rank["rank"], 0) << job;
  EXPECT_EQ(rank["job"], job["id"]) << job;
  EXPECT_EQ(rank["name"], "train") << job;
  EXPECT_EQ(rank["state"], job["state"]) << job;
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["instances"][0]["rank"], 0);
  const json plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true})").json();
  EXPECT_EQ(plan["ranks"], json::array({0})) << plan;
  EXPECT_EQ(plan["size"], 1) << plan;
}

TEST_F(WholeJobsTest, RanksAreShownInTheirJobAndSeparately) {
  const json job = run_ranks("ranks");
  EXPECT_EQ(job["size"], 2) << job;
  EXPECT_EQ(job["gpus"], json::array({"node-a:0", "node-b:0"})) << job;
  EXPECT_EQ(job["node"], nullptr) << job;
  EXPECT_EQ(job["gpu"], nullptr) << job;
  EXPECT_EQ(cluster_.get("/v1/jobs").json().size(), 1U);
  const json whole = cluster_.get("/v1/jobs/ranks").json();
  ASSERT_EQ(whole["instances"].size(), 2U) << whole;
  EXPECT_EQ(whole["instances"][1]["rank"], 1) << whole;
  EXPECT_EQ(whole["instances"][1]["node"], "node-b") << whole;
  EXPECT_EQ(whole["migrations"], json::array()) << whole;
  const json rank = cluster_.get("/v1/jobs/" + job["ranks"][1]["job"].get<std::string>()).json();
  EXPECT_EQ(rank["name"], "ranks.1") << rank;
  EXPECT_EQ(rank["size"], 1) << rank;
  EXPECT_EQ(rank["node"], "node-b") << rank;
  ASSERT_EQ(rank["ranks"].size(), 1U) << rank;
  EXPECT_EQ(rank["ranks"][0]["rank"], 1) << rank;
}

TEST_F(WholeJobsTest, ACallMaySelectARank) {
  run_ranks("ranks");
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks/logs").body, "of rank 0\n");
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks/logs?rank=1").body, "of rank 1\n");
  expect_error(cluster_.get("/v1/jobs/ranks/logs?rank=2"), 404, "not_found", 5);
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks.1/logs").body, "of rank 1\n");
  expect_error(cluster_.get("/v1/jobs/ranks.1/logs?rank=0"), 404, "not_found", 5);
  expect_error(cluster_.get("/v1/jobs/ranks/obstacles?rank=2"), 404, "not_found", 5);
  expect_error(cluster_.post("/v1/jobs/ranks.1/migrate", R"({"ranks":[1]})"), 400, "usage", 64);
}

TEST_F(WholeJobsTest, ImageCallsForASingleRankAreRefused) {
  run_ranks("ranks");
  for (const char* call : {"snapshot", "suspend", "unprotect", "resume", "restore"})
    expect_is_for_whole_jobs(cluster_.post(std::string("/v1/jobs/ranks.1/") + call));
  expect_is_for_whole_jobs(cluster_.post("/v1/jobs/ranks.1/protect", R"({"every_ms":600000})"));
}

TEST_F(WholeJobsTest, AJobIsRemovedOnceAllRanksHaveEnded) {
  run_ranks("ranks");
  expect_error(remove("ranks"), 409, "refused", 5);
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks").json()["ranks"].size(), 2U);
  EXPECT_EQ(cluster_.post("/v1/jobs/ranks/stop").status, 202U);
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks/wait?timeout_ms=30000").json()["state"], "exited");
  EXPECT_EQ(remove("ranks").status, 200U);
  EXPECT_TRUE(cluster_.get("/v1/jobs").json().empty());
}

// A job of one rank has its own reason. A job of several has that of the rank that failed, with its number.
TEST_F(WholeJobsTest, AnEndedJobReportsTheRankThatFailed) {
  run_job();
  a_->end_job(1, 3);
  const json alone = cluster_.get("/v1/jobs/train/wait?timeout_ms=30000").json();
  EXPECT_EQ(alone["exit_code"], 3) << alone;
  EXPECT_EQ(alone["reason"], nullptr) << alone;
  const json job = run_ranks("ranks");
  b_->end_job(std::stoull(job["ranks"][1]["job"].get<std::string>().substr(1)), 7);
  const json ended = cluster_.get("/v1/jobs/ranks/wait?timeout_ms=30000").json();
  EXPECT_EQ(ended["exit_code"], 7) << ended;
  EXPECT_EQ(ended["reason"], "rank 1 ended with exit code 7") << ended;
}

// An ended job of one rank gives its name to a job of several.
TEST_F(WholeJobsTest, ANameSelectsTheLiveJob) {
  run_job();
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/wait?timeout_ms=30000").json()["state"], "exited");
  const json live = run_ranks("train");
  const json named = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(named["id"], live["id"]) << named;
  EXPECT_EQ(named["size"], 2) << named;
}

// An ended job that had the name of a rank does not hide the rank.
TEST_F(WholeJobsTest, TheNameOfARankSelectsTheLiveRank) {
  run_job("ranks.1");
  EXPECT_EQ(cluster_.post("/v1/jobs/ranks.1/stop").status, 202U);
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks.1/wait?timeout_ms=30000").json()["state"], "exited");
  const json live = run_ranks("ranks");
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks.1").json()["id"], live["ranks"][1]["job"]) << live;
}

TEST_F(WholeJobsTest, EventsAreFoundByTheNameOfAJobOrARank) {
  run_ranks("ranks");
  cluster_.wait_for_event("job-started", 2);
  EXPECT_EQ(cluster_.get("/v1/events?job=ranks").status, 200U);
  const json started = cluster_.get("/v1/events?job=ranks.1&type=job-started").json();
  EXPECT_EQ(started["events"].size(), 1U) << started;
}

}  // namespace
}  // namespace ckpt::coordinator::test
