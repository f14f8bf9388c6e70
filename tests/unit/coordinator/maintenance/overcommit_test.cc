// SPDX-License-Identifier: Apache-2.0
// Tests that a job that does not fit parks jobs of lower priority. They use real sockets, with an agent and a
// checkpoint store that do nothing.
#include <gtest/gtest.h>

#include <future>

#include "coordinator/images/images.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/node_messages.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_checkpoint_store.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class OvercommitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    agent_ = std::make_unique<FakeAgent>("node-a", cluster_.agent_address(), cluster_.agent_token());
    checkpoint_store_ =
        std::make_unique<FakeCheckpointStore>(*agent_, "node-a", std::make_shared<SharedFolders>());
    prepare();
    agent_->start();
    cluster_.wait_for_event("node-ready");
  }
  virtual void prepare() {}
  void TearDown() override { agent_.reset(); }
  HttpAnswer run(const std::string& name, int priority, std::uint64_t bytes, bool preempt) {
    const json body = {
        {"argv", {"./train"}},       {"cwd", "/tmp"},     {"name", name}, {"priority", priority},
        {"gpu_memory_bytes", bytes}, {"preempt", preempt}};
    return cluster_.post("/v1/jobs", body.dump());
  }
  bool fits(std::uint64_t bytes) {
    const json body = {
        {"argv", {"./train"}}, {"cwd", "/tmp"}, {"dry_run", true}, {"gpu_memory_bytes", bytes}};
    return cluster_.post("/v1/jobs", body.dump()).json()["possible"];
  }
  // Sends the node's next inventory, and waits until it has replaced the last one.
  void report_free(std::uint64_t bytes) {
    agent_->set_free(bytes);
    while (cluster_.get("/v1/gpus").json()[0]["free_bytes"] != bytes) std::this_thread::yield();
  }
  std::vector<std::string> jobs_of_events(const std::string& kind) {
    std::vector<std::string> jobs;
    const json answer = cluster_.get("/v1/events?since=0").json();
    for (const json& event : answer["events"])
      if (event["kind"] == kind) jobs.push_back(event["job"]);
    return jobs;
  }
  std::string first_text_of(const std::string& kind) {
    const json answer = cluster_.get("/v1/events?since=0").json();
    for (const json& event : answer["events"])
      if (event["kind"] == kind) return event["text"];
    return {};
  }
  std::string state(const std::string& job) { return cluster_.get("/v1/jobs/" + job).json()["state"]; }

  Cluster cluster_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<FakeCheckpointStore> checkpoint_store_;
};

TEST_F(OvercommitTest, JobOfLowerPriorityIsParkedForAJobOfHigherPriority) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  ASSERT_EQ(run("high", 5, 6 * kGiB, false).status, 409U);  // without --preempt the job is refused
  // The parked job's memory is already free: it had been promised, not used.
  const HttpAnswer high = run("high", 5, 6 * kGiB, true);
  ASSERT_EQ(high.status, 201U) << high.body;
  EXPECT_EQ(state("low"), "parked");
  EXPECT_EQ(state("high"), "running");
  EXPECT_EQ(checkpoint_store_->snapshots, 1U);
}

TEST_F(OvercommitTest, DryRunNamesTheJobThatWouldBeParked) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  const json wish = {{"argv", {"./train"}}, {"cwd", "/tmp"},   {"priority", 5},
                     {"preempt", true},     {"dry_run", true}, {"gpu_memory_bytes", 6 * kGiB}};
  const json dry = cluster_.post("/v1/jobs", wish.dump()).json();
  EXPECT_TRUE(dry["possible"].get<bool>()) << dry;
  ASSERT_EQ(dry["displaced"].size(), 1U) << dry;
  EXPECT_EQ(dry["displaced"][0]["name"], "low");
  EXPECT_TRUE(dry["displaced"][0]["to"].is_null());
  EXPECT_EQ(state("low"), "running");
}

TEST_F(OvercommitTest, AvailableMemoryMatchesThePlacementLimit) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  const json gpu = cluster_.get("/v1/gpus").json()[0];
  EXPECT_EQ(gpu["free_bytes"], 8 * kGiB) << "it holds nothing yet";
  EXPECT_EQ(gpu["available_bytes"], 2 * kGiB) << gpu;
}

TEST_F(OvercommitTest, NoJobIsParkedForEqualPriority) {
  ASSERT_EQ(run("one", 3, 6 * kGiB, false).status, 201U);
  const HttpAnswer equal = run("two", 3, 6 * kGiB, true);
  EXPECT_EQ(equal.status, 409U);
  EXPECT_NE(equal.body.find("priority below 3 would not help"), std::string::npos) << equal.body;
  EXPECT_EQ(state("one"), "running");
  EXPECT_EQ(checkpoint_store_->snapshots, 0U);
}

TEST_F(OvercommitTest, JobThatCannotBeParkedContinues) {
  checkpoint_store_->refuse_snapshots = true;
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  EXPECT_NE(run("high", 5, 6 * kGiB, true).status, 201U);
  EXPECT_EQ(state("low"), "running");
}

TEST_F(OvercommitTest, ParkedJobThatExitsReleasesItsReservation) {
  checkpoint_store_->refuse_snapshots = true;  // a job that ends during its snapshot causes such a refusal
  const HttpAnswer low = run("low", 0, 6 * kGiB, false);
  ASSERT_EQ(low.status, 201U);
  auto high = std::async(std::launch::async, [this] { return run("high", 5, 6 * kGiB, true); });
  cluster_.wait_for_event("snapshot-failed");
  agent_->end_job(1, 0);
  const HttpAnswer started = high.get();
  EXPECT_EQ(started.status, 201U) << started.body;
  EXPECT_EQ(state("low"), "exited");
  EXPECT_EQ(state("high"), "running");
}

TEST_F(OvercommitTest, ResumedJobReservesItsMemoryUntilItsNodeReportsTheMemory) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  agent_->hold(1, 6 * kGiB);
  report_free(2 * kGiB);
  cluster_.post("/v1/jobs/low/suspend");
  cluster_.wait_for_event("job-parked");
  report_free(8 * kGiB);
  EXPECT_TRUE(fits(8 * kGiB));
  cluster_.post("/v1/jobs/low/resume");
  cluster_.wait_for_event("job-resumed");
  EXPECT_TRUE(fits(2 * kGiB));
  EXPECT_FALSE(fits(3 * kGiB));
  // The job itself reports the memory that it uses. The node's free memory is still the value from before.
  agent_->post([this] {
    for (wire::JobInstance& instance : agent_->inventory.jobs) instance.ranks[0].state_bytes = 6 * kGiB;
    agent_->change(1, 2, wire::JobPhase::kRunning);
  });
  while (cluster_.get("/v1/jobs/low").json()["memory"]["now_bytes"] != 6 * kGiB) std::this_thread::yield();
  EXPECT_FALSE(fits(3 * kGiB));
  agent_->hold(1, 6 * kGiB);
  report_free(3 * kGiB);
  EXPECT_TRUE(fits(3 * kGiB));
  report_free(8 * kGiB);
  agent_->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  EXPECT_TRUE(fits(8 * kGiB));
}

TEST_F(OvercommitTest, MemoryReservedDuringTheImageLookupIsNotReservedTwice) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  cluster_.post("/v1/jobs/low/suspend");
  cluster_.wait_for_event("job-parked");
  checkpoint_store_->hold_lists = true;
  auto resumed = std::async(std::launch::async, [this] { return cluster_.post("/v1/jobs/low/resume"); });
  while (checkpoint_store_->lists == 0) std::this_thread::yield();
  ASSERT_EQ(run("other", 0, 6 * kGiB, false).status, 201U);
  checkpoint_store_->release_lists();
  const HttpAnswer answer = resumed.get();
  EXPECT_EQ(answer.status, 503U) << answer.body;
  EXPECT_NE(answer.body.find("are reserved for its jobs"), std::string::npos) << answer.body;
  EXPECT_EQ(checkpoint_store_->restores, 0U);
  EXPECT_EQ(state("low"), "parked");
}

TEST_F(OvercommitTest, JobWithAFailedResumeKeepsItsPlaceInTheQueue) {
  ASSERT_EQ(run("oldest", 0, 6 * kGiB, false).status, 201U);
  ASSERT_EQ(run("second", 1, 6 * kGiB, true).status, 201U);
  ASSERT_EQ(run("third", 2, 6 * kGiB, true).status, 201U);
  checkpoint_store_->refuse_restores = true;
  agent_->end_job(3, 0);
  cluster_.wait_for_event("restore-failed");
  checkpoint_store_->refuse_restores = false;
  cluster_.wait_for_event("job-resumed");
  agent_->end_job(1, 0);
  cluster_.wait_for_event("job-resumed", 2);
  EXPECT_EQ(jobs_of_events("restore-failed"), std::vector<std::string>{"j1"});
  EXPECT_EQ(jobs_of_events("job-resumed"), (std::vector<std::string>{"j1", "j2"}));
}

TEST_F(OvercommitTest, ParkedJobsResumeOneAfterAnother) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  ASSERT_EQ(run("high", 1, 6 * kGiB, true).status, 201U);
  checkpoint_store_->hold_lists = true;
  agent_->end_job(2, 0);
  while (checkpoint_store_->lists == 0) std::this_thread::yield();
  // Each of these inventories makes the coordinator check the job again.
  for (int i = 1; i <= 20; ++i) report_free(8 * kGiB - static_cast<std::uint64_t>(i));
  EXPECT_EQ(checkpoint_store_->lists, 1U);
  checkpoint_store_->release_lists();
  cluster_.wait_for_event("job-resumed");
  EXPECT_EQ(checkpoint_store_->restores, 1U);
}

// Tests with two GPUs, one of 8 GiB and one of 16 GiB.
class TwoGpus : public OvercommitTest {
 protected:
  void prepare() override {
    agent_->inventory.gpus.push_back(agent_->inventory.gpus.front());
    wire::GpuInfo& larger = agent_->inventory.gpus.back();
    larger.index = 1;
    larger.uuid += "-1";
    larger.total_bytes = larger.free_bytes = 16 * kGiB;
  }
  void park(JobId job) {
    std::promise<void> parked;
    cluster_.on_images([&](Images& images, control::asio::any_io_executor executor) {
      control::spawn(executor, "a test", park_it(images, job, &parked));
    });
    parked.get_future().get();
  }
  static control::Task<> park_it(Images& images, JobId job, std::promise<void>* parked) {
    EXPECT_TRUE(co_await images.park(job, true, "a test"));
    parked->set_value();
  }
};

TEST_F(TwoGpus, DryRunPlansAMoveOfALowerPriorityJobToAnotherGpu) {
  const HttpAnswer low = run("low", 0, 6 * kGiB, false);
  ASSERT_EQ(low.status, 201U) << low.body;
  const auto gpu = low.json()["gpu"].get<unsigned>();
  json wish = {{"argv", {"./train"}}, {"cwd", "/tmp"},
               {"name", "high"},      {"priority", 5},
               {"node", "node-a"},    {"gpu", gpu},
               {"preempt", true},     {"gpu_memory_bytes", gpu == 0 ? 6 * kGiB : 12 * kGiB},
               {"dry_run", true}};
  const json dry = cluster_.post("/v1/jobs", wish.dump()).json();
  EXPECT_TRUE(dry["possible"].get<bool>()) << dry;
  ASSERT_EQ(dry["displaced"].size(), 1U) << dry;
  const std::string place = "node-a:" + std::to_string(1 - gpu);
  EXPECT_EQ(dry["displaced"][0]["to"], place);
  EXPECT_EQ(state("low"), "running");
  EXPECT_EQ(cluster_.get("/v1/jobs/low").json()["gpu"], gpu);
  EXPECT_EQ(checkpoint_store_->snapshots, 0U);
}

TEST_F(TwoGpus, YoungerJobResumesInMemoryUnclaimedByTheOlderJob) {
  ASSERT_EQ(run("oldest", 0, 7 * kGiB, false).status, 201U);
  ASSERT_EQ(run("second", 0, 6 * kGiB, false).status, 201U);
  park(1);
  park(2);
  checkpoint_store_->refuse_restores = true;
  cluster_.wait_for_event("restore-failed");
  checkpoint_store_->refuse_restores = false;
  cluster_.wait_for_event("job-resumed", 2);
  EXPECT_EQ(jobs_of_events("job-resumed"), (std::vector<std::string>{"j2", "j1"}));
  EXPECT_NE(first_text_of("job-resumed").find("node-a:1"), std::string::npos)
      << "the other one has room for the oldest alone";
}

}  // namespace
}  // namespace ckpt::coordinator::test
