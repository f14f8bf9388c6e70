// SPDX-License-Identifier: Apache-2.0
// Tests of images of jobs that agents take and restore. This program is the agents' coordinator.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "libckpt/protocol/wire/job_messages.h"
#include "tests/fault/fake_coordinator.h"

namespace ckpt {
namespace {

using test::AgentNode;
using test::FakeCoordinator;
using wire::SnapshotPhase;

constexpr wire::JobId kJob = 1;

// Returns the digest in the last line of a program's output.
std::string digest_of(const std::string& output) {
  std::istringstream lines(output);
  std::string digest;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("digest")) digest = json["digest"].dump();
  }
  return digest;
}

class Protect : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    coordinator_.emplace(folder_);
    a_.emplace("a", folder_, *coordinator_);
    b_.emplace("b", folder_, *coordinator_);
    coordinator_->wait("both agents", [this] { return at("a") && at("b"); });
  }
  void TearDown() override {
    b_.reset();
    a_.reset();
    coordinator_.reset();
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] bool at(const std::string& node) const { return coordinator_->connected(node); }

  [[nodiscard]] std::vector<std::string> command(int steps) const {
    if (mode_ == MigrationMode::kTransparent)
      return {CKPT_EXAMPLES "/charlm-plain", "--params", "60000", "--seed", "5", "--step-ms", "8", "--steps",
              std::to_string(steps)};
    return {CKPT_EXAMPLES "/hotset",
            "--bytes",
            "16MiB",
            "--hot",
            "4%",
            "--step-ms",
            "2",
            "--seed",
            "4",
            "--pattern",
            "random",
            "--steps",
            std::to_string(steps),
            "--hold",
            folder_ + "/end",
            "--print-every",
            "1"};
  }
  // Lets the jobs end. Jobs of hotset do not end before this call. In other jobs, the second half of the
  // steps is slow until this call (examples/common/pace.h).
  void let_end() const { std::ofstream(folder_ + "/end").put('\n'); }
  [[nodiscard]] std::string unmoved(int steps) const {
    std::string line;
    for (const std::string& word : command(steps)) line += word + " ";
    static std::map<std::string, std::string> known;  // results by command, since a run takes as long as the
                                                      // job
    if (const auto found = known.find(line); found != known.end()) return found->second;
    FILE* pipe = ::popen(line.c_str(), "r");
    std::string output;
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) output += buffer;
    ::pclose(pipe);
    return known[line] = digest_of(output);
  }
  wire::JobSpec spec(wire::Incarnation incarnation) const {
    wire::JobSpec spec;
    spec.job = kJob;
    spec.name = "job";
    spec.argv = command(steps_);
    spec.cwd = folder_;
    spec.uid = ::getuid();
    spec.gid = ::getgid();
    spec.incarnation = incarnation;
    spec.ranks.resize(1);
    spec.mode = mode_;
    spec.env.push_back("GPUMIGRATE_TEST_HURRY=" + folder_ + "/end");
    return spec;
  }
  void run_job() {
    wire::StartJob start;
    start.spec = spec(1);
    const auto reply = coordinator_->ask("a", start);
    ASSERT_TRUE(reply.ok) << reply.message;
    wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kRunning && job.movable; });
  }
  void wait_for(const std::string& node, wire::Incarnation incarnation,
                const std::function<bool(const wire::JobInstance&)>& what) {
    coordinator_->wait("incarnation " + std::to_string(incarnation) + " on " + node, [&] {
      const auto* job = coordinator_->instance(node, kJob, incarnation);
      return job != nullptr && what(*job);
    });
  }
  wire::TakeSnapshot order() const {
    wire::TakeSnapshot take;
    take.job = kJob;
    take.incarnation = 1;
    take.folder = checkpoint_store();
    take.image_job = "job-1";
    take.keep = 3;
    take.spec = spec(1);
    return take;
  }
  wire::SnapshotReport take() {
    const auto reply = coordinator_->ask("a", order());
    EXPECT_TRUE(reply.ok) << reply.message;
    return coordinator_->reports.back();
  }
  void stop() {
    wire::StopJob stop;
    stop.job = kJob;
    stop.incarnation = 1;
    EXPECT_TRUE(coordinator_->ask("a", stop).ok);
    wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kExited; });
  }
  wire::Reply restore(std::uint64_t version = 0, wire::Incarnation incarnation = 2) {
    wire::RestoreImage restore;
    restore.spec = spec(incarnation);
    restore.folder = checkpoint_store();
    restore.image_job = "job-1";
    restore.version = version;
    return coordinator_->ask("b", restore);
  }
  // Expects that the restored job ends like a job that was never moved.
  void expect_same_end(wire::Incarnation incarnation = 2) {
    let_end();
    wait_for("b", incarnation, [](const auto& job) { return job.phase == wire::JobPhase::kExited; });
    EXPECT_EQ(coordinator_->instance("b", kJob, incarnation)->exit_code, 0);
    EXPECT_EQ(digest_of(b_->output(kJob, incarnation)), unmoved(steps_));
  }
  [[nodiscard]] std::string checkpoint_store() const { return folder_ + "/vault"; }

  const std::string folder_ = testing::TempDir() + "protect-" + std::to_string(::getpid());
  int steps_ = 1500;
  MigrationMode mode_ = MigrationMode::kCooperative;
  std::optional<FakeCoordinator> coordinator_;
  std::optional<AgentNode> a_, b_;
};

TEST_F(Protect, EndedJobContinuesFromItsImage) {
  run_job();
  const auto report = take();
  EXPECT_EQ(report.phase, SnapshotPhase::kDone);
  EXPECT_EQ(report.version, 1u);
  EXPECT_GT(report.pause_ns, 0);
  EXPECT_GE(report.state_bytes, 16u << 20);
  EXPECT_GT(report.host_bytes, 0u);
  EXPECT_EQ(coordinator_->reports.front().phase, SnapshotPhase::kCopying);
  ASSERT_EQ(coordinator_->checkpoint_stores.at("a").images.size(), 1u);
  EXPECT_EQ(coordinator_->checkpoint_stores.at("a").images[0].job, kJob);
  EXPECT_GT(coordinator_->checkpoint_stores.at("a").images[0].created_ms, 0);
  stop();
  const auto reply = restore();
  ASSERT_TRUE(reply.ok) << reply.message;
  expect_same_end();
}

// Tests with a process in the image; CRIU dumps it, as root.
class ProtectTransparent : public Protect {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's memory is not for dumps, nor for a shim that comes first";
#endif
    if (::geteuid() != 0) GTEST_SKIP() << "a process is stored as root only";
    mode_ = MigrationMode::kTransparent;
    steps_ = 500;
    Protect::SetUp();
  }
  void TearDown() override {
    if (coordinator_) Protect::TearDown();
  }
};

TEST_F(ProtectTransparent, EndedJobContinuesFromItsImage) {
  run_job();
  const auto report = take();
  EXPECT_EQ(report.phase, SnapshotPhase::kDone);
  EXPECT_GT(report.host_bytes, 1u << 20);
  EXPECT_EQ(take().parent, 1u);
  stop();
  const auto reply = restore();
  ASSERT_TRUE(reply.ok) << reply.message;
  expect_same_end();
}

TEST_F(ProtectTransparent, AJobWithSnapshotsEndsWithTheSameDigest) {
  run_job();
  for (int i = 0; i < 3; ++i) take();
  let_end();
  wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kExited; });
  EXPECT_EQ(digest_of(a_->output(kJob, 1)), unmoved(steps_));
}

// Tests of kill -9 of the agent while the process is held.
class ProtectTransparentCrash : public ProtectTransparent, public testing::WithParamInterface<int> {};

TEST_P(ProtectTransparentCrash, TheJobContinuesAfterAnAgentCrash) {
  run_job();
  a_->arm("agent.a", GetParam());
  coordinator_->send("a", order());
  coordinator_->wait("the agent's end", [this] { return !at("a"); });
  a_->wait();
  a_->start();
  coordinator_->wait("the agent's return", [this] { return at("a"); });
  EXPECT_TRUE(a_->fired("agent.a", GetParam()));
  EXPECT_EQ(take().phase, SnapshotPhase::kDone);
  let_end();
  wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kExited; });
  EXPECT_EQ(digest_of(a_->output(kJob, 1)), unmoved(steps_));
}

INSTANTIATE_TEST_SUITE_P(Points, ProtectTransparentCrash, testing::Values(111, 112));

TEST_F(Protect, ASecondSnapshotWritesOnlyChangedChunks) {
  run_job();
  const auto first = take();
  const auto second = take();
  EXPECT_EQ(second.version, 2u);
  EXPECT_EQ(second.parent, 1u);
  EXPECT_EQ(first.dirty_bytes, first.state_bytes);
  EXPECT_LT(second.dirty_bytes, first.state_bytes / 4);
  EXPECT_LT(second.written_bytes, first.written_bytes / 4);
  stop();
  ASSERT_TRUE(restore(1).ok);
  expect_same_end();
}

TEST_F(Protect, AJobWithSnapshotsEndsWithTheSameDigest) {
  run_job();
  for (int i = 0; i < 5; ++i) take();
  let_end();
  wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kExited; });
  EXPECT_EQ(digest_of(a_->output(kJob, 1)), unmoved(steps_));
  EXPECT_EQ(coordinator_->checkpoint_stores.at("a").images.size(), 3u);
}

TEST_F(Protect, RestoreSkipsADamagedNewestImageAndTheInstanceReportsTheDamage) {
  run_job();
  take();
  const wire::ImageRow first_listed = coordinator_->checkpoint_stores.at("a").images.at(0);
  take();
  stop();
  std::filesystem::path newest;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_store() + "/jobs/job-1/packs"))
    if (newest.empty() || entry.path().filename() > newest.filename()) newest = entry.path();
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  const auto reply = restore();
  ASSERT_TRUE(reply.ok) << reply.message;
  const wire::RestoreReport used = coordinator_->restored.at("b");
  EXPECT_EQ(used.incarnation, 2u);
  EXPECT_EQ(used.version, 1u);
  EXPECT_EQ(used.barrier_ms, first_listed.created_ms);
  EXPECT_GT(used.fill_ns, 0);
  EXPECT_NE(used.skipped.find("version 2"), std::string::npos) << used.skipped;
  // An agent that is started later also reports the used image.
  coordinator_->restored.clear();
  b_->kill();
  coordinator_->wait("the agent's end", [this] { return !at("b"); });
  b_->start();
  coordinator_->wait("what the instance runs from", [this] { return coordinator_->restored.contains("b"); });
  EXPECT_EQ(coordinator_->restored.at("b").version, 1u);
  expect_same_end();
}

// Returns the numbers of the steps that a program has printed.
std::vector<int> steps_of(const std::string& output) {
  std::vector<int> steps;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("step ")) steps.push_back(std::atoi(line.c_str() + 5));
  return steps;
}

TEST_F(Protect, SuspendEndsTheJobAfterItsImageIsDurable) {
  run_job();
  auto suspend = order();
  suspend.end_after = true;
  const auto reply = coordinator_->ask("a", suspend);
  ASSERT_TRUE(reply.ok) << reply.message;
  wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kMoved; });
  ASSERT_TRUE(restore().ok);
  expect_same_end();
  const std::vector<int> before = steps_of(a_->output(kJob, 1));
  const std::vector<int> after = steps_of(b_->output(kJob, 2));
  ASSERT_FALSE(before.empty() || after.empty());
  EXPECT_EQ(before.back() + 1, after.front()) << "it went on behind its image";
}

TEST_F(Protect, AnOrderRemovesImages) {
  run_job();
  take();
  take();
  wire::CheckpointStoreOrder remove;
  remove.act = wire::CheckpointStoreAct::kRemoveVersion;
  remove.folder = checkpoint_store();
  remove.image_job = "job-1";
  remove.version = 1;
  EXPECT_TRUE(coordinator_->ask("a", remove).ok);
  ASSERT_EQ(coordinator_->checkpoint_stores.at("a").images.size(), 1u);
  EXPECT_EQ(coordinator_->checkpoint_stores.at("a").images[0].version, 2u);
  remove.act = wire::CheckpointStoreAct::kRemoveJob;
  EXPECT_TRUE(coordinator_->ask("a", remove).ok);
  EXPECT_TRUE(coordinator_->checkpoint_stores.at("a").images.empty());
}

TEST_F(Protect, InvalidSnapshotOrdersAreRefused) {
  auto take = order();
  EXPECT_EQ(coordinator_->ask("a", take).error_code, static_cast<std::uint8_t>(ErrorCode::kNotFound));
  run_job();
  take.image_job = "../job";
  EXPECT_FALSE(coordinator_->ask("a", take).ok);
  take.image_job = "job-1";
  take.folder = "vault";
  EXPECT_EQ(coordinator_->ask("a", take).error_code, static_cast<std::uint8_t>(ErrorCode::kInvalidArgument));
  EXPECT_FALSE(restore().ok);
}

// Tests of kill -9 of the agent or of its mover while a snapshot is taken. The job keeps running, the
// previous image restores, and the next snapshot succeeds.
class ProtectCrash : public Protect, public testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(ProtectCrash, TheJobContinuesAndThePreviousImageRestoresAfterACrash) {
  const auto [role, point] = GetParam();
  run_job();
  take();
  a_->arm(role, point);
  coordinator_->send("a", order());
  if (std::string_view(role) == "agent.a") {
    coordinator_->wait("the agent's end", [this] { return !at("a"); });
    a_->wait();
    a_->start();
    coordinator_->wait("the agent's return", [this] { return at("a"); });
  } else {
    coordinator_->wait("the failure",
                       [this] { return coordinator_->reports.back().phase == SnapshotPhase::kFailed; });
  }
  EXPECT_TRUE(a_->fired(role, point));
  wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kRunning && job.movable; });
  EXPECT_EQ(take().phase, SnapshotPhase::kDone);
  EXPECT_TRUE(restore(1).ok);
  expect_same_end();
  wait_for("a", 1, [](const auto& job) { return job.phase == wire::JobPhase::kExited; });
  EXPECT_EQ(digest_of(a_->output(kJob, 1)), unmoved(steps_));
}

INSTANTIATE_TEST_SUITE_P(Points, ProtectCrash,
                         testing::Values(std::pair("agent.a", 111), std::pair("agent.a", 112),
                                         std::pair("agent.a", 113), std::pair("agent.a", 114),
                                         std::pair("mover.a.0", 305), std::pair("mover.a.0", 306),
                                         std::pair("mover.a.0", 307), std::pair("mover.a.0", 308)),
                         [](const auto& info) {
                           return std::string(info.param.first).substr(0, 5) +
                                  std::to_string(info.param.second);
                         });

// Tests of kill -9 of the agent or mover that restores. No part of the instance is left, and the second
// restore runs.
class RestoreCrash : public Protect, public testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(RestoreCrash, ASecondRestoreSucceedsAfterACrash) {
  const auto [role, point] = GetParam();
  run_job();
  take();
  stop();
  b_->arm(role, point);
  if (std::string_view(role) == "agent.b") {
    wire::RestoreImage order;
    order.spec = spec(2);
    order.folder = checkpoint_store();
    order.image_job = "job-1";
    coordinator_->send("b", order);
    coordinator_->wait("the agent's end", [this] { return !at("b"); });
    b_->wait();
    b_->start();
    coordinator_->wait("the agent's return", [this] { return at("b"); });
  } else {
    EXPECT_FALSE(restore().ok);
  }
  EXPECT_TRUE(b_->fired(role, point));
  EXPECT_EQ(b_->living_keepers(), 0) << "the instance is left over";
  const auto reply = restore();
  ASSERT_TRUE(reply.ok) << reply.message;
  expect_same_end();
}

INSTANTIATE_TEST_SUITE_P(Points, RestoreCrash,
                         testing::Values(std::pair("agent.b", 221), std::pair("agent.b", 222),
                                         std::pair("mover.b.0", 406)),
                         [](const auto& info) {
                           return std::string(info.param.first).substr(0, 5) +
                                  std::to_string(info.param.second);
                         });

}  // namespace
}  // namespace ckpt
