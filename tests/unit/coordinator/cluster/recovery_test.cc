// SPDX-License-Identifier: Apache-2.0
// Tests of a coordinator whose store was lost, or is an older copy, with agents that know more. Running jobs
// are adopted, and the records of both sides decide the handovers.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "coordinator/state/model.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/ids.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr wire::IdTag kOldTag = 77;
constexpr JobId kOldJob = wire::make_id(6, kOldTag);
constexpr MigrationId kOldMigration = wire::make_id(9, kOldTag);

wire::JobSpec old_spec() {
  wire::JobSpec spec;
  spec.job = kOldJob;
  spec.incarnation = 1;
  spec.name = "train";
  spec.argv = {"./train", "--steps", "5000"};
  spec.cwd = "/tmp";
  spec.ranks.emplace_back();
  return spec;
}

wire::JobInstance instance_of(JobId job, Incarnation started_as, Incarnation runs_as, wire::JobPhase phase) {
  wire::JobInstance instance;
  instance.job = job;
  instance.name = "train";
  instance.incarnation = started_as;
  instance.runs_as = runs_as;
  instance.phase = phase;
  instance.movable = true;
  instance.ranks.emplace_back();
  return instance;
}

class RecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.config().tagged_ids = true;
    cluster_.config().lease_term_ms = 1'000;
  }
  void start() {
    start_closed();
    open();
  }
  void open() { ASSERT_EQ(cluster_.post("/v1/recovery/open", R"({"for_ms":600000})").status, 200U); }
  void start_closed() {
    cluster_.start();
    a_ = agent("node-a");
    b_ = agent("node-b");
  }
  std::unique_ptr<FakeAgent> agent(const std::string& node) {
    auto made = std::make_unique<FakeAgent>(node, cluster_.agent_address(), cluster_.agent_token());
    made->introduction.describes = true;
    made->on_other = [this, raw = made.get()](const wire::FrameHeader& header,
                                              std::span<const std::byte> body) {
      describe(*raw, header, body);
    };
    return made;
  }
  void describe(FakeAgent& agent, const wire::FrameHeader& header, std::span<const std::byte> body) {
    if (header.type == wire::FrameType::kDescribeJob) {
      wire::JobFacts facts;
      facts.request_id = wire::decode<wire::DescribeJob>(body).value().request_id;
      facts.spec = spec_;
      agent.send(facts);
    } else if (header.type == wire::FrameType::kDescribeHandover) {
      wire::MigrationPlan plan;
      plan.spec = old_spec();
      plan.source_node = "node-a";
      plan.target_node = "node-b";
      plan.target_ranks = plan.spec.ranks;
      plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
      plan.session_token.resize(wire::kSessionTokenBytes);
      wire::HandoverFacts facts;
      facts.request_id = wire::decode<wire::DescribeHandover>(body).value().request_id;
      facts.migration = kOldMigration;
      facts.job = kOldJob;
      facts.base = 1;
      facts.plan = wire::encode(plan);
      agent.send(facts);
    }
  }
  json job(const std::string& name) { return cluster_.get("/v1/jobs/" + name).json(); }
  json found() { return cluster_.get("/v1/recovery").json()["found"]; }
  // Opens a handover at both nodes. According to their records, the source has reached its barrier and the
  // target has committed.
  void open_handover_at_both() {
    a_->introduction.handovers.emplace_back(kOldMigration, kOldJob, wire::Side::kSource);
    b_->introduction.handovers.emplace_back(kOldMigration, kOldJob, wire::Side::kTarget);
    a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 1, wire::JobPhase::kPaused));
    b_->inventory.jobs.push_back(instance_of(kOldJob, 2, 2, wire::JobPhase::kRunning));
    b_->inventory.jobs.back().role = wire::JobRole::kStandby;
  }
  json migration_when(const std::function<bool(const json&)>& done) {
    const std::string id = wire::migration_text(kOldMigration);
    std::uint64_t since = 0;
    while (true) {
      const auto answer = cluster_.get("/v1/migrations/" + id + "/watch?since=" + std::to_string(since));
      if (answer.status != 200) return answer.body;
      json m = answer.json();
      if (done(m)) return m;
      since = m["revision"].get<std::uint64_t>();
    }
  }

  Cluster cluster_;
  wire::JobSpec spec_ = old_spec();
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

TEST_F(RecoveryTest, UnknownRunningJobIsRecoveredWithItsCommand) {
  start();
  a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 3, wire::JobPhase::kRunning));
  a_->introduction.newest_job = kOldJob;
  a_->start();
  cluster_.wait_for_event("job-taken-in");
  const json taken = job("train");
  EXPECT_EQ(taken["id"], wire::job_text(kOldJob));
  EXPECT_EQ(taken["state"], "running");
  EXPECT_EQ(taken["incarnation"], 3);
  EXPECT_EQ(taken["argv"], json(spec_.argv));
  EXPECT_EQ(a_->starts(), 0U);  // no instance is started for the job
  ASSERT_EQ(found().size(), 1U);
  EXPECT_EQ(found()[0]["kind"], "job");
  // Numbers continue after those of the old store.
  const auto next = cluster_.post("/v1/jobs", R"({"argv":["./new"],"cwd":"/tmp","name":"new"})");
  ASSERT_EQ(next.status, 201U) << next.body;
  EXPECT_EQ(next.json()["id"].get<std::string>().substr(0, 3), "j7-");
}

TEST_F(RecoveryTest, NodeReportOutsideTheRecoveryWindowCreatesNoJob) {
  start_closed();
  open_handover_at_both();
  unsigned described = 0;
  a_->on_other = [&described](const wire::FrameHeader& header, std::span<const std::byte>) {
    described +=
        header.type == wire::FrameType::kDescribeJob || header.type == wire::FrameType::kDescribeHandover;
  };
  a_->start();
  cluster_.wait_for_event("job-not-taken-in", 2);
  EXPECT_EQ(cluster_.get("/v1/jobs").json(), json::array());
  EXPECT_EQ(cluster_.get("/v1/migrations").json(), json::array());
  for (const json& one : found()) EXPECT_FALSE(one["taken_in"].get<bool>()) << one;
  EXPECT_EQ(found().size(), 2U);
  // The event is shown once, however often the node reports it.
  a_->set_free(1 << 20);
  a_->set_free(1 << 21);
  b_->inventory.jobs.clear();
  b_->introduction.handovers.clear();
  b_->start();
  cluster_.wait_for_event("node-ready", 2);
  EXPECT_EQ(found().size(), 2U);
  a_->stop();
  EXPECT_EQ(described, 0U);
}

TEST_F(RecoveryTest, RecoveryWindowOpenedLaterAdoptsExistingJobs) {
  start_closed();
  a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 1, wire::JobPhase::kRunning));
  a_->start();
  cluster_.wait_for_event("job-not-taken-in");
  open();
  cluster_.wait_for_event("job-taken-in");
  EXPECT_FALSE(cluster_.get("/v1/recovery").json()["open_until"].is_null());
  ASSERT_EQ(cluster_.post("/v1/recovery/close").status, 200U);
  cluster_.wait_for_event("recovery-closed");
  EXPECT_TRUE(cluster_.get("/v1/recovery").json()["open_until"].is_null());
  b_->inventory.jobs.push_back(instance_of(kOldJob + 1, 1, 1, wire::JobPhase::kRunning));
  b_->start();
  cluster_.wait_for_event("job-not-taken-in", 2);
  EXPECT_EQ(cluster_.get("/v1/jobs").json().size(), 1U);
}

TEST_F(RecoveryTest, RecoveryWindowClosesAutomatically) {
  start_closed();
  ASSERT_EQ(cluster_.post("/v1/recovery/open", R"({"for_ms":1000})").status, 200U);
  cluster_.wait_for_event("recovery-closed");
}

TEST_F(RecoveryTest, RecoveredJobMovesOnlyByOrder) {
  start();
  a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 1, wire::JobPhase::kRunning));
  a_->start();
  cluster_.wait_for_event("job-taken-in");
  b_->start();
  cluster_.wait_for_event("node-ready", 2);
  EXPECT_TRUE(job("train")["unconfirmed"].get<bool>());
  // The recovered job stays in place despite an invented finding, a drain, a rebalance and a job of a higher
  // priority. Each of these reports the reason.
  wire::HealthReport report;
  wire::HealthFinding& finding = report.findings.emplace_back();
  finding.number = 1;
  finding.time_ms = wall_clock_ms();
  finding.source = "xid";
  finding.xid = 79;
  finding.cordon = finding.urgent = true;
  finding.outcome = wire::HealthOutcome::kLive;
  finding.reason = "forged";
  a_->report_health(report);
  const json drain = cluster_.post("/v1/drains", R"({"place":"node-a","fallback":"restore"})").json();
  cluster_.wait_for_event("evacuation");
  cluster_.wait_for_event("drain-job");
  const json shown = cluster_.get("/v1/drains/" + drain["id"].get<std::string>()).json()["jobs"][0];
  EXPECT_EQ(shown["state"], "blocked") << shown;
  EXPECT_NE(shown["reason"].get<std::string>().find("cluster confirm train"), std::string::npos) << shown;
  const json plan = cluster_.post("/v1/rebalance").json();
  EXPECT_NE(plan["fixed"][0]["reason"].get<std::string>().find("cluster confirm"), std::string::npos) << plan;
  EXPECT_NE(
      cluster_.get("/v1/health").json()["evacuations"][0]["note"].get<std::string>().find("cluster confirm"),
      std::string::npos);
  EXPECT_EQ(b_->starts(), 0U);
  EXPECT_EQ(cluster_.get("/v1/migrations").json(), json::array());
  // Once an admin confirms the job, it moves.
  ASSERT_EQ(cluster_.post("/v1/jobs/train/confirm").status, 200U);
  b_->set_free(std::uint64_t{7} << 30);  // each inventory makes the coordinator check every waiting job again
  cluster_.wait_for_event("migration-begun");
  EXPECT_EQ(cluster_.post("/v1/jobs/train/confirm").status, 409U);
}

TEST_F(RecoveryTest, MoveOrderedByAUserConfirmsARecoveredJob) {
  start();
  a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 1, wire::JobPhase::kRunning));
  a_->start();
  b_->start();
  cluster_.wait_for_event("job-taken-in");
  cluster_.wait_for_event("node-ready", 2);
  const auto moved = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  ASSERT_EQ(moved.status, 202U) << moved.body;
  cluster_.wait_for_event("job-confirmed");
  EXPECT_FALSE(job("train")["unconfirmed"].get<bool>());
}

TEST_F(RecoveryTest, LaterIncarnationIsAdoptedOnlyInTheRecoveryWindow) {
  start_closed();
  a_->start();
  cluster_.wait_for_event("node-ready");
  const auto answer =
      cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","node":"node-a"})");
  ASSERT_EQ(answer.status, 201U) << answer.body;
  const JobId id = parse_job_id(answer.json()["id"].get<std::string>()).value();
  b_->inventory.jobs.push_back(instance_of(id, 9, 9, wire::JobPhase::kRunning));
  b_->start();
  cluster_.wait_for_event("job-not-taken-in");
  EXPECT_EQ(job("train")["node"], "node-a");
  EXPECT_EQ(job("train")["incarnation"], 1);
  open();
  cluster_.wait_for_event("job-taken-in");
  EXPECT_EQ(job("train")["node"], "node-b");
  EXPECT_TRUE(job("train")["unconfirmed"].get<bool>());
}

TEST_F(RecoveryTest, RecoveredJobWithANameInUseGetsALongerName) {
  start();
  b_->start();
  cluster_.wait_for_event("node-ready");
  ASSERT_EQ(cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train"})").status, 201U);
  a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 1, wire::JobPhase::kRunning));
  a_->start();
  cluster_.wait_for_event("job-taken-in");
  EXPECT_EQ(job("train")["node"], "node-b");
  EXPECT_EQ(job("train-" + wire::job_text(kOldJob))["node"], "node-a");
}

TEST_F(RecoveryTest, JobWithoutACommandIsNotRecovered) {
  start();
  spec_.argv.clear();
  a_->inventory.jobs.push_back(instance_of(kOldJob, 1, 1, wire::JobPhase::kRunning));
  a_->start();
  cluster_.wait_for_event("node-ready");
  ASSERT_EQ(cluster_.post("/v1/jobs", R"({"argv":["./new"],"cwd":"/tmp","name":"new"})").status, 201U);
  EXPECT_EQ(cluster_.get("/v1/jobs/train").status, 404U);
}

TEST_F(RecoveryTest, IncarnationNewerThanTheStoreIsAdopted) {
  start();
  a_->start();
  cluster_.wait_for_event("node-ready");
  const auto answer =
      cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","node":"node-a"})");
  ASSERT_EQ(answer.status, 201U) << answer.body;
  const JobId id = parse_job_id(answer.json()["id"].get<std::string>()).value();
  // The job was moved after the copy of the store was made. Node-a releases it first, and the job counts as
  // lost.
  a_->stop();
  cluster_.wait_for_event("node-lost");
  a_ = agent("node-a");
  a_->start();
  cluster_.wait_for_event("job-lost");
  b_->inventory.jobs.push_back(instance_of(id, 2, 2, wire::JobPhase::kRunning));
  b_->inventory.jobs.back().role = wire::JobRole::kStandby;
  b_->start();
  cluster_.wait_for_event("job-taken-in");
  EXPECT_EQ(job("train")["state"], "running");
  EXPECT_EQ(job("train")["node"], "node-b");
  EXPECT_EQ(job("train")["incarnation"], 2);
}

TEST_F(RecoveryTest, InstanceOfAnEarlierIncarnationChangesNothing) {
  start();
  a_->start();
  cluster_.wait_for_event("node-ready");
  const auto answer =
      cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","node":"node-a"})");
  ASSERT_EQ(answer.status, 201U) << answer.body;
  const JobId id = parse_job_id(answer.json()["id"].get<std::string>()).value();
  b_->inventory.jobs.push_back(instance_of(id, 1, 1, wire::JobPhase::kRunning));
  b_->start();
  cluster_.wait_for_event("node-ready", 2);
  EXPECT_EQ(job("train")["node"], "node-a");
  EXPECT_TRUE(found().empty());
}

// The target has committed, and the source waits at its barrier. After the lease term the coordinator grants
// the target again.
TEST_F(RecoveryTest, HandoverOpenOnBothSidesIsDecidedByItsRecordsAfterALeaseTerm) {
  start();
  open_handover_at_both();
  std::atomic<bool> granted{false};
  a_->instead = [this](const wire::CommitMessage& m) {
    if (std::holds_alternative<wire::GiveUp>(m.body) || std::holds_alternative<wire::Query>(m.body))
      a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Query());
    if (std::holds_alternative<wire::Ran>(m.body) || std::holds_alternative<wire::Closed>(m.body))
      a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Released());
    return true;
  };
  b_->instead = [this, &granted](const wire::CommitMessage& m) {
    granted = granted || std::holds_alternative<wire::Commit>(m.body);
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Committed(2));
    if (granted) b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Ran(2));
    return true;
  };
  a_->start();
  b_->start();
  cluster_.wait_for_event("migration-found");
  const json open = migration_when([](const json&) { return true; });
  EXPECT_EQ(open["state"], "forgotten");
  EXPECT_FALSE(granted);
  const json closed =
      migration_when([](const json& m) { return m["result"] != json() && m["result"] != ""; });
  EXPECT_EQ(closed["result"], "done");
  EXPECT_TRUE(granted);
  EXPECT_EQ(job("train")["node"], "node-b");
  EXPECT_EQ(job("train")["incarnation"], 2);
}

// One record that ends the handover is enough, but only after the lease term.
TEST_F(RecoveryTest, HandoverAbandonedByItsTargetEndsAtTheSource) {
  start();
  open_handover_at_both();
  b_->inventory.jobs.clear();
  a_->instead = [this](const wire::CommitMessage& m) {
    const auto* end = std::get_if<wire::Closed>(&m.body);
    if (end != nullptr && end->side == wire::Side::kSource) {
      a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Resumed(1, true, false));
      a_->change(kOldJob, 1, wire::JobPhase::kRunning);
    } else {
      a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Query());
    }
    return true;
  };
  b_->instead = [this](const wire::CommitMessage& m) {
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Relinquished());
    return true;
  };
  a_->start();
  b_->start();
  cluster_.wait_for_event("migration-found");
  const json closed = migration_when([](const json& m) { return !m["open"].get<bool>(); });
  EXPECT_EQ(closed["result"], "failed");
  EXPECT_NE(closed["error"].get<std::string>().find("lost its record"), std::string::npos) << closed["error"];
  EXPECT_EQ(job("train")["node"], "node-a");
}

TEST_F(RecoveryTest, HandoverKnownToOnlyOneSideStaysOpenUntilResolved) {
  start();
  open_handover_at_both();
  a_->instead = [this](const wire::CommitMessage& m) {
    if (std::holds_alternative<wire::Closed>(m.body)) {
      a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Resumed(1, true, false));
      a_->change(kOldJob, 1, wire::JobPhase::kRunning);
    } else {
      a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Query());
    }
    return true;
  };
  a_->start();
  cluster_.wait_for_event("migration-found");
  cluster_.wait_for_event("job-taken-in");
  const json undecided = cluster_.get("/v1/recovery").json()["undecided"];
  ASSERT_EQ(undecided.size(), 1U);
  EXPECT_EQ(undecided[0]["away"], json::array({"node-b"}));
  const std::string path = "/v1/migrations/" + wire::migration_text(kOldMigration);
  const auto resolved = cluster_.post(path + "/resolve", R"({"at":"source"})");
  EXPECT_EQ(resolved.status, 202U) << resolved.body;
  const json closed = migration_when([](const json& m) { return m["result"] == "failed"; });
  EXPECT_EQ(closed["result"], "failed");
}

}  // namespace
}  // namespace ckpt::coordinator::test
