// SPDX-License-Identifier: Apache-2.0
// The metrics of GET /metrics. Every name is in docs/metrics.md, and a test compares them.
//
// A part of the coordinator adds a metric in one of three ways, without a change elsewhere:
// - events: each EventLog::add(kind, ...) is counted in gpumigrate_events_total{kind};
// - state in a table: metrics.registry().gauge(name, help, labels, [this](metrics::Series& out) {...}) in its
//   constructor; the table is read at each scrape;
// - a number that an event does not carry: a member here, named like lost_work, and
//   `metrics.lost_work.add(...)` where it is known.
// Labels are nodes, GPUs, states, results: never jobs, migrations or texts.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: none.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "coordinator/fleet/jobs.h"
#include "coordinator/operations/job_states.h"
#include "coordinator/state/event_log.h"
#include "libckpt/net/metrics/registry.h"
#include "libckpt/net/tls/cert_identity.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

class Metrics {
 public:
  struct Tables {
    EventLog& events;
    const NodeTable& nodes;
    JobTable& jobs;
    const MigrationTable& migrations;
    const JobStates& states;
  };
  explicit Metrics(Tables tables);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  [[nodiscard]] metrics::Registry& registry() noexcept { return registry_; }
  [[nodiscard]] const metrics::Registry& registry() const noexcept { return registry_; }
  // Registers the metrics of certificates. Call this once. `own` is null if there are no certificates.
  void observe_certificates(std::shared_ptr<const tls::Identity> own);
  // Counts an answer of the HTTP API.
  void answered(unsigned status);

 private:
  metrics::Registry registry_;  // declared before the counters that use it

 public:
  metrics::Counters events;       // label: kind
  metrics::Counters api_answers;  // label: code (2xx, 4xx, ...)
  metrics::Counters migrations;   // labels: strategy, mode, result
  metrics::Counters sent_bytes;   // label: kind (chunks, host, context)
  metrics::Counters final_bytes;
  metrics::Counters wire_bytes;
  metrics::Counters dirty_bytes;
  metrics::Counters resent_chunks;
  metrics::Histograms migration_seconds;  // labels: strategy, mode
  metrics::Histograms setup_seconds;      // label: mode
  metrics::Histograms downtime_seconds;   // labels: strategy, mode
  metrics::Histograms downtime_pieces;    // label: piece
  metrics::Histograms rounds;
  metrics::Histograms memory_follows_seconds;
  metrics::Histograms rank_skew_seconds;
  metrics::Histograms rank_pause_seconds;     // label: communicators; only for ranks that stay
  metrics::Histograms communicators_seconds;  // labels: rank, communicators

 private:
  // Counts the event. For some events of a migration, for example its end, also counts the migration's
  // measurements.
  void count_event(const Event& event);
  void observe_nodes();
  void observe_gpus();
  void observe_gpu_errors();
  void observe_jobs();
  void observe_migrations();
  void observe_transfer(const char* name, const char* help, std::uint64_t wire::MigrationProgress::*field);
  void prepare_series();
  void ended(const Migration& migration);
  void ranks_measured(const Migration& lead);
  void count(const wire::SourceReport& report);
  [[nodiscard]] std::string mode_of(JobId id) const;

  Tables tables_;
  std::set<MigrationId> preparing_;  // migrations that have begun and are not known to be ready yet
};

}  // namespace ckpt::coordinator
