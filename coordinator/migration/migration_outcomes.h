// SPDX-License-Identifier: Apache-2.0
// Processes the reports of a handover and of its sides, and writes them into the tables. They determine how
// far a migration is, where its job runs, and how it ended. A decided migration is closed once its sides have
// reported their measurements, or after a timeout.
//
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: none;
// those of the store are logged.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "coordinator/fleet/job_runner.h"
#include "coordinator/migration/migration_table.h"
#include "libckpt/protocol/handover/handover_types.h"

namespace ckpt::coordinator {

class MigrationOutcomes {
 public:
  struct Dependencies {
    MigrationTable& table;
    EventLog& events;
    const NodeTable& nodes;
    JobTable& jobs;
    JobRunner& job_runner;
    control::asio::any_io_executor executor;
  };
  explicit MigrationOutcomes(Dependencies deps);
  MigrationOutcomes(const MigrationOutcomes&) = delete;
  MigrationOutcomes& operator=(const MigrationOutcomes&) = delete;

  // Processes a report of the handover. `owner` is the incarnation that the job's owner has reported; 0:
  // none.
  void on_report(Migration& migration, const migration::Report& report, Incarnation owner);
  void decide(Migration& migration, MigrationResult result, const std::string& error, Incarnation owner);
  // Handles a report that the job of a decided migration runs as `owner`.
  void on_owner(Migration& migration, Incarnation owner);
  void on_source_report(Migration& migration, const wire::SourceReport& report);
  void on_target_report(Migration& migration, const wire::TargetReport& report);
  // Handles the arrival of the host memory that followed the process. The migration may then be over.
  void on_memory_arrived(Migration& migration, const wire::TargetReport& report);
  // Closes a decided migration, or waits for missing measurements of its sides.
  void close_when_measured(Migration& migration);

 private:
  void enter(Migration& migration, MigrationPhase phase);
  void runs_at(Migration& migration, Side side, Incarnation k);
  void close_measured();
  void close(Migration& migration);
  [[nodiscard]] bool job_stands_still(const Migration& migration) const;
  void note_pause(Job& job, const Migration& migration);

  Dependencies deps_;
  // timers of decided migrations that are not closed yet
  std::map<MigrationId, std::shared_ptr<control::asio::steady_timer>> timers_;
};

}  // namespace ckpt::coordinator
