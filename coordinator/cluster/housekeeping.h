// SPDX-License-Identifier: Apache-2.0
// The periodic cleanup. Once a minute it removes old entries from the tables and the store (settings *_kept),
// and stores the memory sizes of jobs. Entries are removed in batches, one transaction each. Other work of
// the event loop runs between two batches.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: those of
// the store are logged, and the step is retried a minute later.
#pragma once

#include "coordinator/health/evacuation_table.h"
#include "coordinator/health/health.h"
#include "coordinator/maintenance/drain_table.h"
#include "coordinator/migration/migration_runner.h"
#include "coordinator/settings/config.h"

namespace ckpt::coordinator {

class Housekeeping {
 public:
  struct Dependencies {
    const Config& config;
    EventLog& events;
    JobTable& jobs;
    JobRunner& job_runner;
    MigrationRunner& migration_runner;
    DrainTable& drains;
    HealthTable& health;
    EvacuationTable& evacuations;
    control::asio::any_io_executor executor;
  };
  explicit Housekeeping(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts the periodic cleanup. Call this once, after load() of all tables.
  void start();

 private:
  control::Task<> run();
  // Each of these functions processes one batch and returns true if there is more to process. Other work of
  // the event loop runs between two batches.
  bool store_what_was_learnt();
  bool remove_jobs();
  bool remove_migrations();
  bool remove_events();
  bool remove_other_entries();
  [[nodiscard]] Retention retention(std::int64_t count) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
