// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/past.h"

#include <algorithm>
#include <filesystem>

#include "coordinator/state/store.h"

namespace ckpt::coordinator::test {
namespace {

constexpr std::uint64_t kOldStateBytes = std::uint64_t{1} << 30;

Job ended_job(JobId id, const Past& past) {
  Job job;
  job.id = id;
  job.spec.name = "old";
  job.spec.argv = {"./train"};
  if (past.environment_bytes != 0) job.spec.env = {"PAD=" + std::string(past.environment_bytes, 'x')};
  job.spec.ranks.resize(1);
  job.segments.emplace_back("node-a", 1);
  job.ranks.resize(1);
  job.ranks.front().place = Place("node-a", 0);
  job.state = JobState::kExited;
  job.ended_ms = past.ended_ms;
  return job;
}

Migration closed_migration(MigrationId id, const Past& past) {
  Migration m;
  m.id = id;
  m.job = 1 + id % past.jobs;
  m.job_name = "old";
  m.from = Place("node-a", 0);
  m.to = Place("node-b", 0);
  m.phase = MigrationPhase::kClosed;
  m.result = MigrationResult::kDone;
  m.ended_ms = past.ended_ms;
  if (!past.reports) return m;
  m.source_report.emplace().state_bytes = kOldStateBytes;
  m.source_report->migration = id;
  m.source_report->estimate.emplace();
  m.target_report.emplace().verified = true;
  m.target_report->migration = id;
  return m;
}

Event old_event(std::uint64_t index, const Past& past) {
  const std::int64_t span = past.last_event_ms - past.first_event_ms;
  Event event;
  event.time_ms =
      past.first_event_ms + span * static_cast<std::int64_t>(index) / static_cast<std::int64_t>(past.events);
  event.kind = "migration-ended";
  event.text = "migration of old (j1) from node-a:0 to node-b:0 is done";
  return event;
}

}  // namespace

Result<void> write_past(const std::string& coordinator_folder, const Past& past) {
  std::error_code failure;
  std::filesystem::create_directories(coordinator_folder, failure);
  if (failure)
    return Error(ErrorCode::kIo, "Cannot create the folder " + coordinator_folder + ": " + failure.message());
  CKPT_TRY(store, Store::open(coordinator_folder + "/state.db"));
  CKPT_TRY(transaction, Transaction::begin(store.database()));
  for (std::uint64_t i = 0; i < past.jobs; ++i) {
    CKPT_TRY(id, store.next_job_id());
    CKPT_TRYV(store.put(ended_job(id, past)));
  }
  for (std::uint64_t i = 0; i < past.migrations; ++i) {
    CKPT_TRY(id, store.next_migration_id());
    CKPT_TRYV(store.put(closed_migration(id, past)));
  }
  for (std::uint64_t i = 1; i <= past.events; ++i) {
    CKPT_TRYV(store.add(old_event(i, past)));
  }
  return transaction.commit();
}

}  // namespace ckpt::coordinator::test
