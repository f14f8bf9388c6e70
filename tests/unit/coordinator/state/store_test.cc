// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "libckpt/base/fd.h"

namespace ckpt::coordinator {
namespace {

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/storeXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/state.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  std::string path_;
};

Job some_job() {
  Job job;
  job.id = 3;
  job.spec.job = 3;
  job.spec.name = "train";
  job.spec.argv = {"./train", "--quote", "it's \"so\""};
  job.spec.env = {"A=B"};
  job.spec.cwd = "/tmp";
  job.spec.ranks.resize(1);
  job.state = JobState::kRunning;
  job.incarnation = 4;
  job.segments = {Segment("a", 1), Segment("b", 4)};
  JobRank& rank = job.ranks.emplace_back();
  rank.place = Place("b", 1);
  rank.pid = 77;
  rank.state_bytes = 1 << 20;
  job.phase = wire::JobPhase::kPaused;
  job.movable = true;
  job.reason = "why \xff not";  // not UTF-8: must not make the row unreadable
  job.exit_code = -1;
  job.started_ms = 5;
  job.last_downtime_ms = 1.5;
  return job;
}

TEST_F(StoreTest, JobsSurviveReopening) {
  {
    Store store = Store::open(path_).value();
    ASSERT_TRUE(store.put(some_job()));
  }
  Store store = Store::open(path_).value();
  const auto jobs = store.jobs();
  ASSERT_TRUE(jobs);
  ASSERT_EQ(jobs.value().size(), 1U);
  const Job& job = jobs.value().front();
  EXPECT_EQ(job.id, 3U);
  EXPECT_EQ(job.spec.argv, some_job().spec.argv);
  EXPECT_EQ(job.spec.env, some_job().spec.env);
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.incarnation, 4U);
  EXPECT_EQ(job.segments, some_job().segments);
  EXPECT_EQ(job.ranks.at(0).place, Place("b", 1));
  EXPECT_EQ(job.ranks.at(0).state_bytes, 1U << 20);
  EXPECT_EQ(job.phase, wire::JobPhase::kPaused);
  EXPECT_TRUE(job.movable);
  EXPECT_EQ(job.last_downtime_ms, 1.5);
}

TEST_F(StoreTest, PausesOfAJobSurviveReopening) {
  wire::PauseFacts pause;
  pause.kind = wire::PauseKind::kProcess;
  for (std::size_t i = 0; i < wire::kPauseTerms; ++i) {
    pause.ns.all[i] = static_cast<std::int64_t>(1'000'001 * (i + 1));
    pause.bytes.all[i] = static_cast<std::int64_t>((std::uint64_t{3} << 32) + i);
  }
  {
    Store store = Store::open(path_).value();
    Job job = some_job();
    job.pauses = {pause};
    ASSERT_TRUE(store.put(job));
  }
  Store store = Store::open(path_).value();
  const auto jobs = store.jobs();
  ASSERT_TRUE(jobs);
  const auto& pauses = jobs.value().at(0).pauses;
  ASSERT_EQ(pauses.size(), 1u);
  EXPECT_EQ(pauses[0].kind, pause.kind);
  EXPECT_EQ(pauses[0].ns.all, pause.ns.all);
  EXPECT_EQ(pauses[0].bytes.all, pause.bytes.all);
}

TEST_F(StoreTest, MigrationsKeepTheirReports) {
  Migration m;
  m.id = 9;
  m.job = 3;
  m.from = Place("a", 0);
  m.to = Place("b", 1);
  m.phase = MigrationPhase::kCommitted;
  m.runs_at = Side::kTarget;
  m.base = 1;
  m.incarnation = 2;
  m.options.codec = wire::CodecMode::kDifference;
  m.options.shadow_memory_bytes = std::uint64_t{5} << 30;
  m.options.slowdown_permille = 30;
  m.source_report.emplace();
  m.source_report->paused_ns = 42;
  {
    Store store = Store::open(path_).value();
    ASSERT_TRUE(store.put(m));
  }
  Store store = Store::open(path_).value();
  const auto all = store.migrations();
  ASSERT_TRUE(all);
  ASSERT_EQ(all.value().size(), 1U);
  const Migration& read = all.value().front();
  EXPECT_EQ(read.id, 9U);
  EXPECT_EQ(read.to, Place("b", 1));
  EXPECT_EQ(read.phase, MigrationPhase::kCommitted);
  EXPECT_EQ(read.runs_at, Side::kTarget);
  EXPECT_EQ(read.options.codec, wire::CodecMode::kDifference);
  EXPECT_EQ(read.options.shadow_memory_bytes, std::uint64_t{5} << 30);
  EXPECT_EQ(read.options.slowdown_permille, 30U);
  ASSERT_TRUE(read.source_report);
  EXPECT_EQ(read.source_report->paused_ns, 42);
  EXPECT_FALSE(read.target_report);
}

TEST_F(StoreTest, IdsAreNeverReused) {
  JobId last = 0;
  {
    Store store = Store::open(path_).value();
    ASSERT_EQ(store.next_job_id().value(), 1U);
    Job job = some_job();
    job.id = last = store.next_job_id().value();
    ASSERT_TRUE(store.put(job));
    ASSERT_TRUE(store.remove_job(job.id));
  }
  Store store = Store::open(path_).value();
  EXPECT_EQ(store.next_job_id().value(), last + 1);
  EXPECT_EQ(store.next_migration_id().value(), 1U);
}

TEST_F(StoreTest, NewStoreReusesNoIdOfALostStore) {
  std::set<JobId> jobs;
  std::set<MigrationId> migrations;
  constexpr std::size_t kLives = 4;
  constexpr std::size_t kIds = 3;
  for (std::size_t life = 0; life < kLives; ++life) {
    Store store = Store::open(path_).value();
    ASSERT_TRUE(store.draw_id_tag());
    for (std::size_t i = 0; i < kIds; ++i) {
      jobs.insert(store.next_job_id().value());
      migrations.insert(store.next_migration_id().value());
    }
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + end);
  }
  EXPECT_EQ(jobs.size(), kLives * kIds);
  EXPECT_EQ(migrations.size(), kLives * kIds);
}

TEST_F(StoreTest, StoreRecognizesExactlyItsOwnIds) {
  std::vector<JobId> given;
  const auto start = [&](bool tagged, std::size_t ids) {
    Store store = Store::open(path_).value();
    if (tagged) {
      EXPECT_TRUE(store.draw_id_tag());
    }
    for (std::size_t i = 0; i < ids; ++i) given.push_back(store.next_job_id().value());
    return store.id_tag();
  };
  start(false, 2);  // a store of a version without tags
  start(true, 2);
  const wire::IdTag idle = start(true, 0);
  const wire::IdTag last = start(true, 1);
  Store store = Store::open(path_).value();
  ASSERT_TRUE(store.draw_id_tag());
  for (const JobId id : given) EXPECT_TRUE(store.gave(id)) << job_text(id);
  EXPECT_EQ(wire::id_number(given.back()), 5U);  // the numbers continue
  for (const JobId id : {wire::make_id(1, last), wire::make_id(5, idle), wire::make_id(6, last), JobId{3},
                         wire::make_id(6, store.id_tag())})
    EXPECT_FALSE(store.gave(id)) << job_text(id);
}

EventQuery events_after(std::uint64_t id, std::size_t limit) {
  EventQuery query;
  query.since = id;
  query.limit = limit;
  return query;
}

TEST_F(StoreTest, NewestEventsAreKept) {
  Store store = Store::open(path_).value();
  for (int i = 0; i < 10; ++i) {
    Event event;
    event.kind = "kind" + std::to_string(i);
    ASSERT_TRUE(store.add(event));
  }
  ASSERT_TRUE(store.prune_events(3));
  auto events = store.events(events_after(0, 100)).value();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events.front().kind, "kind7");
  EXPECT_EQ(store.events(events_after(events.front().id, 100)).value().size(), 2U);
  EXPECT_EQ(store.events(events_after(0, 1)).value().size(), 1U);
  // An id is not reused after the newest events were read and the table is empty.
  ASSERT_TRUE(store.prune_events(0));
  EXPECT_GT(store.add(Event()).value(), events.back().id);
}

TEST_F(StoreTest, OldEventsAreRemovedInBatches) {
  Store store = Store::open(path_).value();
  {
    auto transaction = Transaction::begin(store.database()).value();
    for (std::int64_t i = 1; i <= 12'000; ++i) {
      Event event;
      event.time_ms = i;
      ASSERT_TRUE(store.add(event));
    }
    ASSERT_TRUE(transaction.commit());
  }
  const auto first = [&] { return store.events(events_after(0, 1)).value().front().id; };
  EXPECT_TRUE(store.prune_events(1'000'000, 11'001).value());
  EXPECT_EQ(first(), Store::kMaxPruned + 1);
  EXPECT_TRUE(store.prune_events(1'000'000, 11'001).value());
  EXPECT_FALSE(store.prune_events(1'000'000, 11'001).value());
  EXPECT_EQ(first(), 11'001U) << "what is older has left";
  EXPECT_FALSE(store.prune_events(10).value());
  EXPECT_EQ(first(), 11'991U);
  EXPECT_FALSE(store.prune_events(10).value());
  EXPECT_FALSE(store.prune_events(10, 20'000).value());
  EXPECT_TRUE(store.events(events_after(0, 1)).value().empty());
  EXPECT_EQ(store.add(Event()).value(), 12'001U);
}

TEST_F(StoreTest, HighestRemovedMigrationIsStored) {
  Store store = Store::open(path_).value();
  EXPECT_EQ(store.highest_removed_migration().value(), 0U);
  for (int i = 0; i < 3; ++i) {
    Migration m;
    m.id = store.next_migration_id().value();
    ASSERT_TRUE(store.put(m));
  }
  ASSERT_TRUE(store.remove_migrations(std::vector<MigrationId>{1, 3}));
  ASSERT_TRUE(store.remove_migrations(std::vector<MigrationId>{2}));
  EXPECT_TRUE(store.migrations().value().empty());
  EXPECT_EQ(store.highest_removed_migration().value(), 3U);
  EXPECT_EQ(store.next_migration_id().value(), 4U);
}

TEST_F(StoreTest, FencesOfAStoreThatOrdersThemByJobAreTheOldestRemovals) {
  {
    Database db = Database::open(path_).value();
    ASSERT_TRUE(
        db.execute("CREATE TABLE job_fences (job INTEGER PRIMARY KEY, fenced INTEGER NOT NULL);"
                   "INSERT INTO job_fences VALUES (4, 2);"));
  }
  Store store = Store::open(path_).value();
  const Store::Fences added = {{3, 5}};
  ASSERT_TRUE(store.remove_jobs({}, added));
  EXPECT_EQ(store.fences().value(), (Store::Fences{{4, 2}, {3, 5}}));
  Store again = Store::open(path_).value();
  EXPECT_EQ(again.fences().value(), (Store::Fences{{4, 2}, {3, 5}}));
}

TEST_F(StoreTest, StoreFileIsReadableOnlyByItsOwner) {
  Store store = Store::open(path_).value();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(StoreTest, StoreRefusesCorruptFilesAndNewerVersions) {
  ASSERT_TRUE(write_file_durably(path_, std::string(4096, 'x')));
  EXPECT_FALSE(Store::open(path_));
  std::filesystem::remove(path_);
  { Store store = Store::open(path_).value(); }
  ASSERT_TRUE(Database::open(path_).value().execute("PRAGMA user_version=99"));
  const auto newer = Store::open(path_);
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code(), ErrorCode::kNotSupported);
}

TEST_F(StoreTest, ErrorNamesARowThatDoesNotDecode) {
  Store store = Store::open(path_).value();
  ASSERT_TRUE(store.put(some_job()));
  ASSERT_TRUE(Database::open(path_).value().execute("UPDATE jobs SET document = '{\"state\":2}'"));
  const auto jobs = store.jobs();
  ASSERT_FALSE(jobs);
  EXPECT_EQ(jobs.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(jobs.error().message().find("Row 3 of table jobs"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::coordinator
