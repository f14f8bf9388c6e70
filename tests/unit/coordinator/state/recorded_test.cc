// SPDX-License-Identifier: Apache-2.0
// Tests of stores and documents as a coordinator of 2026-11 wrote them, with enums as numbers. `store.sql` is
// the store of a cluster of two nodes. It contains a moved, a parked, a restored and an ended job, a drain
// and a finding. The documents next to it have a value in every field.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "coordinator/images/image_catalog.h"
#include "coordinator/policies/drain/drain.h"
#include "coordinator/policies/evacuation/evacuation.h"
#include "coordinator/state/documents.h"
#include "coordinator/state/sqlite.h"
#include "coordinator/state/store.h"
#include "libckpt/base/fd.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxRecordedBytes = 1 << 20;

std::string recorded(const std::string& name) {
  return read_file(RECORDED "/" + name, kMaxRecordedBytes).value();
}

Image expected_image() {
  Image image;
  image.node = "node-a";
  image.folder = "/mnt/vault";
  image.image_job = "train.j3";
  image.job = 3;
  image.version = 12;
  image.sequence = 77;
  image.barrier_ms = 1000;
  image.state_bytes = 4096;
  image.gpu_model = "H200";
  image.incarnation = 4;
  image.suspect = "Xid 48";
  return image;
}

void check_job(const Job& job) {
  EXPECT_EQ(job.state, JobState::kRestoring);
  EXPECT_EQ(job.phase, wire::JobPhase::kPaused);
  EXPECT_EQ(job.incarnation, 5U);
  ASSERT_EQ(job.segments.size(), 2U);
  EXPECT_EQ(job.segments[0], Segment("node-a", 1));
  EXPECT_EQ(job.segments[1].image, "j3.v2@node-a");
  EXPECT_EQ(job.segments[1].lost_ms, 9);
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0].place, Place("node-b", 2));
  EXPECT_EQ(job.ranks[0].state_bytes, 1U << 20);
  EXPECT_TRUE(job.movable && job.stop_requested && job.unfenced && job.unconfirmed && job.ended_on_request &&
              job.resumes_itself);
  EXPECT_EQ(job.obstacles, -1);
  EXPECT_EQ(job.reason + job.placed, "a reasonmost free");
  EXPECT_EQ(job.rendezvous_incarnation, 4U);
  EXPECT_EQ(job.rendezvous_port, 7100U);
  EXPECT_EQ(job.unfenced_nodes, (std::set<std::string>{"node-c", "node-d"}));
  EXPECT_EQ(job.exit_code, 9);
  EXPECT_EQ(std::tuple(job.started_ms, job.ended_ms, job.parked_ms, job.last_active_ms, job.stop_grace_ms),
            std::tuple(5, 6, 11, 12, 1500));
  EXPECT_EQ(job.last_downtime_ms, 1.5);
  EXPECT_EQ(job.fenced, 3U);
  ASSERT_EQ(job.pauses.size(), 1U);
  EXPECT_EQ(job.pauses[0].kind, wire::PauseKind::kProcess);
  EXPECT_EQ(job.pauses[0].ns.all.back(), 21);
  EXPECT_EQ(job.pauses[0].bytes.all.front(), 100);
  ASSERT_TRUE(job.protection && job.snapshot && job.operation);
  EXPECT_EQ(job.protection->keep, 3U);
  EXPECT_EQ(job.protection->error, "disk full");
  EXPECT_EQ(job.snapshot->waited_bytes, 23U);
  EXPECT_EQ(record::to_document(job.snapshot->image), record::to_document(expected_image()));
  EXPECT_EQ(job.operation->goal, OperationGoal::kRunning);
  EXPECT_EQ(job.operation->stage, OperationStage::kStarting);
  EXPECT_EQ(job.operation->cancelled, "by hand");
  EXPECT_EQ(job.operation->stop_grace_ms, 44);
  ASSERT_EQ(job.doubts.size(), 1U);
  EXPECT_EQ(job.doubts[0].up_to, 3U);
  EXPECT_EQ(job.memory.peak(), 4194304U);
  EXPECT_EQ(job.memory.minutes().size(), 2U);
}

TEST(Recorded, CompleteJobDocumentIsReadAndWrittenAgainWithFieldNames) {
  const Job job = job_from_document(recorded("job.json"));
  check_job(job);
  const std::string text = job_document(job);
  check_job(job_from_document(text));
  const auto document = record::parse_object(text);
  EXPECT_EQ(document["state"], "restoring");
  EXPECT_EQ(document["phase"], "paused");
  EXPECT_EQ(document["operation"]["stage"], "starting");
  EXPECT_EQ(document["pauses"][0]["kind"], "process");
  EXPECT_FALSE(document.contains("id"));
}

TEST(Recorded, FormerStopOwedFieldIsConvertedToAnUnfencedNode) {
  auto document = record::parse_object(recorded("job.json"));
  document.erase("may_live_on");
  document["stop_owed"] = true;
  EXPECT_EQ(job_from_document(document.dump()).unfenced_nodes, std::set<std::string>{"node-b"});
}

TEST(Recorded, JobWithoutAnInstanceIsRefused) {
  auto document = record::parse_object(recorded("job.json"));
  document["segments"] = record::json::array();
  EXPECT_THROW((void)job_from_document(document.dump()), record::DocumentError);
}

void check_migration(const Migration& m) {
  EXPECT_EQ(std::tuple(m.job, m.gang_move, m.base, m.incarnation, m.revision),
            std::tuple(3U, 8U, 6U, 7U, 61U));
  EXPECT_EQ(m.from, Place("node-a", 0));
  EXPECT_EQ(m.to, Place("node-b", 1));
  EXPECT_EQ(m.options.strategy, wire::MigrateStrategy::kStopCopy);
  EXPECT_EQ(m.options.if_not_converged, wire::NotConverged::kAbort);
  EXPECT_EQ(m.options.max_downtime_ns, 51);
  EXPECT_EQ(m.options.bandwidth_bytes_per_second, 52U);
  EXPECT_EQ(m.options.max_rounds, 53U);
  EXPECT_EQ(m.options.codec, wire::CodecMode::kPlanes);
  EXPECT_EQ(m.options.shadow_memory_bytes, 54U);
  EXPECT_EQ(m.options.slowdown_permille, 55U);
  EXPECT_EQ(m.options.new_argv, (std::vector<std::string>{"./new", "x"}));
  EXPECT_EQ(m.options.allowed_differences, 5);
  EXPECT_EQ(m.options.communicators, wire::Communicators::kInPause);
  EXPECT_EQ(m.options.connections, wire::Connections::kReset);
  EXPECT_EQ(m.expected_pause_ms, 57.5);
  EXPECT_EQ(m.reason + m.network + m.transport + m.error, "whyfasttlsan error");
  EXPECT_EQ(m.phase, MigrationPhase::kCommitted);
  EXPECT_EQ(m.result, MigrationResult::kRestored);
  EXPECT_EQ(m.abort_cause, AbortCause::kTimeout);
  EXPECT_EQ(m.runs_at, Side::kTarget);
  EXPECT_TRUE(m.ran_at_target && m.settled);
  EXPECT_EQ(std::tuple(m.timeout_ms, m.started_ms, m.ended_ms), std::tuple(56, 58, 59));
  ASSERT_EQ(m.staying.size(), 1U);
  EXPECT_EQ(m.staying[0].to_barrier_ms, 4.5);
  EXPECT_EQ(m.skew_ms, 0.5);
}

TEST(Recorded, CompleteMigrationDocumentIsReadAndWrittenAgain) {
  const Migration migration = migration_from_document(recorded("migration.json"));
  check_migration(migration);
  const std::string text = migration_document(migration);
  check_migration(migration_from_document(text));
  EXPECT_EQ(record::parse_object(text)["mode"], "stop-copy");
}

TEST(Recorded, CompleteEvacuationDocumentIsRead) {
  const auto e = record::from_text<Evacuation>(recorded("evacuation.json"));
  EXPECT_EQ(e.outcome, wire::HealthOutcome::kRestore);
  EXPECT_EQ(e.state, EvacuationState::kRestored);
  EXPECT_EQ(e.to, Place("node-b", 1));
  EXPECT_EQ(e.lost_ms, 71);
  EXPECT_EQ(e.started_ms, (std::vector<std::int64_t>{72, 73}));
  ASSERT_EQ(e.failed.size(), 1U);
  EXPECT_EQ(e.failed[0].to, Place("node-c", 0));
  EXPECT_EQ(e.not_live + e.note + e.reason, "suspecta noteXid 79");
  EXPECT_TRUE(e.leave_node && e.revive && !e.urgent);
  EXPECT_EQ(std::tuple(e.created_ms, e.ended_ms, e.incarnation, e.migration), std::tuple(74, 75, 4U, 9U));
}

TEST(Recorded, CompleteDrainDocumentIsRead) {
  const auto drain = record::from_text<Drain>(recorded("drain.json"));
  EXPECT_EQ(drain.scope, Scope("node-a", 1));
  EXPECT_EQ(drain.fallback, Fallback::kRestore);
  EXPECT_EQ(drain.result, DrainResult::kCancelled);
  EXPECT_TRUE(drain.cancelled);
  EXPECT_EQ(drain.cancel_reason + drain.reason, "laterdriver");
  EXPECT_EQ(std::tuple(drain.parallel, drain.deadline_ms, drain.started_ms, drain.ended_ms, drain.revision),
            std::tuple(3U, 81, 82, 83, 85U));
  ASSERT_EQ(drain.jobs.size(), 1U);
  const DrainJob& job = drain.jobs[0];
  EXPECT_EQ(job.state, DrainJobState::kBlocked);
  EXPECT_EQ(job.obstacles, std::vector<std::string>{"node-b:0 is full"});
  EXPECT_EQ(std::tuple(job.priority, job.state_bytes, job.attempts, job.migration),
            std::tuple(-4, 84U, 2U, 9U));
  EXPECT_EQ(job.from, Place("node-a", 1));
  EXPECT_EQ(job.to, Place("node-b", 0));
  EXPECT_EQ(job.downtime_ms, 8.5);
  EXPECT_TRUE(job.restore_tried);
}

class RecordedStore : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/recordedXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    auto made = Database::open(folder_ + "/state.db").value();
    ASSERT_TRUE(made.execute((recorded("store.sql") + "PRAGMA user_version=2;").c_str()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(RecordedStore, JobsAndMigrationsAreReadAndStoredAgain) {
  for (int round = 0; round < 2; ++round) {
    Store store = Store::open(folder_ + "/state.db").value();
    const auto jobs = store.jobs().value();
    ASSERT_EQ(jobs.size(), 4U);
    EXPECT_EQ(jobs[0].spec.name, "plain");
    EXPECT_EQ(jobs[0].state, JobState::kRunning);
    EXPECT_EQ(jobs[0].incarnation, 3U);
    EXPECT_EQ(jobs[0].segments.size(), 3U);
    ASSERT_TRUE(jobs[0].snapshot);
    EXPECT_EQ(jobs[0].snapshot->image.version, 2U);
    EXPECT_EQ(jobs[1].state, JobState::kExited);
    EXPECT_EQ(jobs[1].phase, wire::JobPhase::kExited);
    EXPECT_EQ(jobs[2].spec.priority, 5);
    EXPECT_EQ(jobs[2].last_downtime_ms, 256.741292);
    const auto migrations = store.migrations().value();
    ASSERT_EQ(migrations.size(), 3U);
    EXPECT_EQ(migrations[0].result, MigrationResult::kDone);
    ASSERT_TRUE(migrations[0].source_report && migrations[0].target_report);
    EXPECT_TRUE(migrations[0].target_report->verified);
    EXPECT_EQ(migrations[1].result, MigrationResult::kRefused);
    EXPECT_EQ(migrations[1].options.if_not_converged, wire::NotConverged::kAbort);
    EXPECT_EQ(migrations[2].reason, "[gpumigrate] drain d1-h3ga");
    for (const Job& job : jobs) ASSERT_TRUE(store.put(job));
    for (const Migration& migration : migrations) ASSERT_TRUE(store.put(migration));
  }
}

// The store's rows contain numbers where this build writes names. Only the version keeps an older build from
// misreading them.
TEST_F(RecordedStore, OpeningTheStoreUpgradesItsVersion) {
  ASSERT_TRUE(Store::open(folder_ + "/state.db").has_value());
  auto database = Database::open(folder_ + "/state.db").value();
  auto statement = database.prepare("PRAGMA user_version").value();
  ASSERT_TRUE(statement.next().value());
  EXPECT_EQ(statement.integer(0), 3);
}

TEST_F(RecordedStore, ImagesAreRead) {
  Store store = Store::open(folder_ + "/state.db").value();
  ImageCatalog catalog(store, [](JobId, Incarnation, std::int64_t) { return std::nullopt; });
  ASSERT_TRUE(catalog.load());
  const auto images = catalog.list();
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].image.sequence, 1796002036325537U);
  EXPECT_EQ(images[0].pause_ns, 118863511);
  EXPECT_EQ(images[1].parent, 1U);
  EXPECT_EQ(image_text(images[1].image), "j1-h3ga.v2@node-b");
}

TEST_F(RecordedStore, DrainIsRead) {
  auto database = Database::open(folder_ + "/state.db").value();
  auto statement = database.prepare("SELECT document FROM drains").value();
  ASSERT_TRUE(statement.next().value());
  const auto drain = record::from_text<Drain>(statement.text(0));
  EXPECT_EQ(drain.scope.node, "node-a");
  EXPECT_FALSE(drain.scope.gpu);
  EXPECT_EQ(drain.result, DrainResult::kEmpty);
  EXPECT_EQ(drain.jobs.at(0).state, DrainJobState::kMoved);
}

}  // namespace
}  // namespace ckpt::coordinator
