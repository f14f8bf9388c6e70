// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/metrics.h"

#include <array>
#include <map>
#include <utility>

#include "coordinator/state/report.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/metrics/process.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using metrics::Series;
using metrics::Values;

constexpr double kMsPerSecond = 1e3;
constexpr std::array kPieces = {
    std::pair{"quiesce", &Downtime::quiesce}, std::pair{"final", &Downtime::final_copy},
    std::pair{"verify", &Downtime::verify},   std::pair{"commit", &Downtime::commit},
    std::pair{"context", &Downtime::context}, std::pair{"host", &Downtime::host},
    std::pair{"fill", &Downtime::fill},       std::pair{"restore", &Downtime::restore},
    std::pair{"resume", &Downtime::resume},   std::pair{"communicators", &Downtime::communicators}};
constexpr std::array kJobStates = {"starting",   "running",     "migrating", "paused", "stopping",
                                   "suspending", "parked",      "restoring", "exited", "failed",
                                   "lost",       "unreachable", "unknown"};
constexpr std::array kResults = {MigrationResult::kDone,     MigrationResult::kFailed,
                                 MigrationResult::kTimedOut, MigrationResult::kInterrupted,
                                 MigrationResult::kRestored, MigrationResult::kLost,
                                 MigrationResult::kRefused};
constexpr std::array kOpenPhases = {MigrationPhase::kPreparing, MigrationPhase::kPrecopy,
                                    MigrationPhase::kGranted,   MigrationPhase::kVerified,
                                    MigrationPhase::kCommitted, MigrationPhase::kClosing};
constexpr std::array kStrategies = {wire::MigrateStrategy::kLive, wire::MigrateStrategy::kStopCopy};
constexpr std::array kMigrationModes = {MigrationMode::kCooperative, MigrationMode::kTransparent,
                                        MigrationMode::kAdopted};

// Returns bucket bounds in seconds. They range from pauses of cooperative jobs (milliseconds) to transparent
// moves between nodes over a slow link.
std::vector<double> pause_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}
std::vector<double> duration_bounds() {
  return {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600};
}
std::vector<double> round_bounds() {
  return {1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50};
}

std::string strategy_text(wire::MigrateStrategy strategy) {
  return strategy == wire::MigrateStrategy::kStopCopy ? "stop_copy" : "live";
}
std::string communicators_label(wire::Communicators when) {
  return when == wire::Communicators::kInPause ? "in_pause" : "overlap";
}
std::string gpu_text(std::uint32_t index) {
  return std::to_string(index);
}
double seconds(std::int64_t unix_ms) {
  return static_cast<double>(unix_ms) / kMsPerSecond;
}

}  // namespace

Metrics::Metrics(Tables tables)
    : events(registry_.counter("gpumigrate_events_total", "Events since the coordinator started, by kind.",
                               {"kind"})),
      api_answers(registry_.counter("gpumigrate_api_answers_total", "HTTP API responses, by status class.",
                                    {"code"})),
      migrations(registry_.counter("gpumigrate_migrations_total",
                                   "Migrations that have ended, by result (see docs/api.md).",
                                   {"strategy", "mode", "result"})),
      sent_bytes(
          registry_.counter("gpumigrate_sent_bytes_total",
                            "Bytes that ended migrations transferred, before encoding: chunks of device "
                            "memory, the host process's state, and the data of the driver's own checkpoint.",
                            {"kind"})),
      final_bytes(registry_.counter("gpumigrate_final_bytes_total",
                                    "Bytes of the chunks that were copied during the pause; a chunk counts "
                                    "with its encoded size if that is smaller.")),
      wire_bytes(
          registry_.counter("gpumigrate_wire_bytes_total",
                            "Bytes that ended migrations put on the link: chunks as encoded, with headers.")),
      dirty_bytes(
          registry_.counter("gpumigrate_dirty_bytes_total",
                            "Bytes of ended migrations that were found changed after the first round and "
                            "sent again.")),
      resent_chunks(registry_.counter("gpumigrate_resent_chunks_total",
                                      "Chunks that arrived with a wrong fingerprint and were sent again.")),
      migration_seconds(registry_.histogram("gpumigrate_migration_duration_seconds",
                                            "Time from the request to the end of a successful migration.",
                                            {"strategy", "mode"}, duration_bounds())),
      setup_seconds(registry_.histogram("gpumigrate_setup_seconds",
                                        "Time from the request until both sides were ready to copy.",
                                        {"mode"}, duration_bounds())),
      downtime_seconds(
          registry_.histogram("gpumigrate_downtime_seconds",
                              "Time from the job's entry into the barrier until it ran again at the target.",
                              {"strategy", "mode"}, pause_bounds())),
      downtime_pieces(registry_.histogram(
          "gpumigrate_downtime_piece_seconds",
          "The downtime split along its critical path (docs/architecture.md).", {"piece"}, pause_bounds())),
      rounds(registry_.histogram("gpumigrate_rounds",
                                 "Complete passes of scan and copy, including the final one.", {},
                                 round_bounds())),
      memory_follows_seconds(registry_.histogram(
          "gpumigrate_memory_follows_seconds",
          "Time from the continuation of a process at the target until all its host memory had arrived.", {},
          duration_bounds())),
      rank_skew_seconds(registry_.histogram(
          "gpumigrate_rank_skew_seconds",
          "Time between the first and the last rank at the common barrier of a move of ranks.", {},
          pause_bounds())),
      rank_pause_seconds(registry_.histogram("gpumigrate_staying_rank_pause_seconds",
                                             "Pause of a rank that stayed while other ranks moved.",
                                             {"communicators"}, pause_bounds())),
      communicators_seconds(
          registry_.histogram("gpumigrate_communicators_seconds",
                              "Time to create a rank's new communicators for a move of ranks.",
                              {"rank", "communicators"}, duration_bounds())),
      tables_(tables) {
  metrics::add_process_metrics(registry_, "coordinator");
  observe_nodes();
  observe_gpus();
  observe_jobs();
  observe_migrations();
  prepare_series();
  tables_.events.added().subscribe([this](const Event& event) { count_event(event); });
}

// Creates all series with the value 0. A series that begins with its first event has no rate at that event.
void Metrics::prepare_series() {
  for (const wire::MigrateStrategy strategy : kStrategies) {
    for (const MigrationMode with : kMigrationModes) {
      const Values labels = {strategy_text(strategy), std::string(to_string(with))};
      migration_seconds.prepare(labels);
      downtime_seconds.prepare(labels);
      for (const MigrationResult result : kResults)
        migrations.add({labels[0], labels[1], std::string(to_string(result))}, 0);
    }
  }
  for (const MigrationMode with : kMigrationModes) setup_seconds.prepare({std::string(to_string(with))});
  for (const auto& [piece, field] : kPieces) downtime_pieces.prepare({piece});
  for (const char* kind : {"chunks", "host", "context"}) sent_bytes.add({kind}, 0);
  for (const char* kind :
       {"node-ready", "node-lost", "job-started", "job-ended", "job-failed", "job-lost", "job-parked",
        "snapshot-taken", "snapshot-failed", "image-damaged", "restore-failed"})
    events.add({kind}, 0);
  memory_follows_seconds.prepare({});
  rank_skew_seconds.prepare({});
  for (const wire::Communicators when : {wire::Communicators::kOverlap, wire::Communicators::kInPause}) {
    rank_pause_seconds.prepare({communicators_label(when)});
    for (const char* rank : {"moved", "stayed"})
      communicators_seconds.prepare({rank, communicators_label(when)});
  }
  final_bytes.add({}, 0);
  wire_bytes.add({}, 0);
  dirty_bytes.add({}, 0);
  resent_chunks.add({}, 0);
  rounds.prepare({});
}

void Metrics::observe_nodes() {
  registry_.gauge("gpumigrate_node_ready", "1 while the node's agent is connected, else 0.", {"node"},
                  [this](Series& out) {
                    for (const auto& [name, node] : tables_.nodes.all())
                      out.add({name}, node.connected() ? 1 : 0);
                  });
  registry_.gauge("gpumigrate_agent_heartbeat_timestamp_seconds",
                  "Unix time of the last report of the node's agent.", {"node"}, [this](Series& out) {
                    for (const auto& [name, node] : tables_.nodes.all())
                      out.add({name}, seconds(node.row.last_seen_ms));
                  });
}

void Metrics::observe_certificates(std::shared_ptr<const tls::Identity> own) {
  registry_.gauge(
      "gpumigrate_certificate_end_timestamp_seconds",
      "Unix time at which the certificate of a node, or of the coordinator (node is empty), expires.",
      {"node"}, [this, own = std::move(own)](Series& out) {
        if (own) out.add({""}, static_cast<double>(own->expires_unix_s()));
        for (const auto& [name, node] : tables_.nodes.all())
          if (node.certificate_ends_s != 0) out.add({name}, static_cast<double>(node.certificate_ends_s));
      });
}

void Metrics::observe_gpus() {
  const auto each = [this](const char* name, const char* help, auto value) {
    registry_.gauge(name, help, {"node", "gpu"}, [this, value](Series& out) {
      for (const auto& [name, node] : tables_.nodes.all()) {
        for (const wire::GpuInfo& gpu : node.gpus)
          out.add({name, gpu_text(gpu.index)}, static_cast<double>(value(node, gpu)));
      }
    });
  };
  each("gpumigrate_gpu_memory_total_bytes", "Memory of the GPU.",
       [](const Node&, const wire::GpuInfo& gpu) { return gpu.total_bytes; });
  each("gpumigrate_gpu_memory_free_bytes", "Free memory of the GPU, as last reported.",
       [](const Node&, const wire::GpuInfo& gpu) { return gpu.free_bytes; });
  each("gpumigrate_gpu_jobs", "Live jobs on the GPU.", [this](const Node& node, const wire::GpuInfo& gpu) {
    return tables_.jobs.live_on(Place(node.row.name, gpu.index));
  });
  each("gpumigrate_gpu_job_bytes", "Device memory of the GPU's live jobs that a move would copy.",
       [this](const Node& node, const wire::GpuInfo& gpu) {
         std::uint64_t bytes = 0;
         for (const Job& job : tables_.jobs.live()) {
           if (holds_gpu(job.state) && job.place() == Place(node.row.name, gpu.index))
             bytes += job.state_bytes();
         }
         return bytes;
       });
  each("gpumigrate_gpu_recovery_action", "Action that the driver requests (NVML field 230); 0: none.",
       [](const Node&, const wire::GpuInfo& gpu) { return gpu.recovery_action; });
  each("gpumigrate_gpu_remap_pending", "1 while the GPU must be reset to remap faulty rows of its memory.",
       [](const Node&, const wire::GpuInfo& gpu) { return gpu.remap_pending ? 1 : 0; });
  each("gpumigrate_gpu_remap_failed", "1 if a faulty row of the GPU's memory could not be remapped.",
       [](const Node&, const wire::GpuInfo& gpu) { return gpu.remap_failed ? 1 : 0; });
  observe_gpu_errors();
  // UUID and modelName are spelled as in NVIDIA's exporter, for joins with its series.
  registry_.gauge("gpumigrate_gpu_info", "Always 1; the labels identify the GPU.",
                  {"node", "gpu", "UUID", "modelName"}, [this](Series& out) {
                    for (const auto& [name, node] : tables_.nodes.all()) {
                      for (const wire::GpuInfo& gpu : node.gpus)
                        out.add({name, gpu_text(gpu.index), gpu.uuid, gpu.model}, 1);
                    }
                  });
}

// Exports counts as gauges, because NVML's counts restart when the driver or the GPU restarts.
void Metrics::observe_gpu_errors() {
  registry_.gauge(
      "gpumigrate_gpu_ecc_errors",
      "Errors of the GPU's memory, as counted by NVML; absent where NVML does not report them.",
      {"node", "gpu", "counter", "severity"}, [this](Series& out) {
        for (const auto& [name, node] : tables_.nodes.all()) {
          for (const wire::GpuInfo& gpu : node.gpus) {
            const wire::GpuErrors& errors = gpu.errors;
            const auto add = [&out, &gpu, &of = name](const char* counter, bool known,
                                                      std::uint64_t corrected, std::uint64_t uncorrected) {
              if (!known) return;
              const std::string index = gpu_text(gpu.index);
              out.add({of, index, counter, "corrected"}, static_cast<double>(corrected));
              out.add({of, index, counter, "uncorrected"}, static_cast<double>(uncorrected));
            };
            add("volatile", errors.volatile_known, errors.volatile_corrected, errors.volatile_uncorrected);
            add("aggregate", errors.aggregate_known, errors.aggregate_corrected,
                errors.aggregate_uncorrected);
          }
        }
      });
  registry_.gauge(
      "gpumigrate_gpu_remapped_rows",
      "Rows of the GPU's memory that were replaced; absent where NVML does not report them.",
      {"node", "gpu", "severity"}, [this](Series& out) {
        for (const auto& [name, node] : tables_.nodes.all()) {
          for (const wire::GpuInfo& gpu : node.gpus) {
            if (!gpu.errors.rows_known) continue;
            const std::string index = gpu_text(gpu.index);
            out.add({name, index, "corrected"}, static_cast<double>(gpu.errors.rows_corrected));
            out.add({name, index, "uncorrected"}, static_cast<double>(gpu.errors.rows_uncorrected));
          }
        }
      });
}

void Metrics::observe_jobs() {
  registry_.gauge("gpumigrate_jobs",
                  "Jobs that the coordinator knows, by state; ended jobs only up to ended_jobs_kept.",
                  {"state"}, [this](Series& out) {
                    std::map<std::string, double> count;
                    for (const char* state : kJobStates) count[state] = 0;
                    for (const auto& [id, job] : tables_.jobs.all()) ++count[tables_.states.of(job)];
                    for (const auto& [state, jobs] : count) out.add({state}, jobs);
                  });
}

void Metrics::observe_migrations() {
  registry_.gauge("gpumigrate_migrations_in_progress", "Open migrations, by state.", {"state"},
                  [this](Series& out) {
                    std::map<MigrationPhase, double> count;
                    for (const Migration& m : tables_.migrations.open()) ++count[m.phase];
                    for (const MigrationPhase phase : kOpenPhases)
                      out.add({std::string(to_string(phase))}, count[phase]);
                  });
  registry_.gauge(
      "gpumigrate_oldest_open_migration_timestamp_seconds",
      "Unix time at which the oldest open migration was requested; absent if no migration is open.", {},
      [this](Series& out) {
        const auto open = tables_.migrations.open();  // the table is ordered by id, and ids
                                                      // increase with time
        if (!open.empty()) out.add(seconds(open.front().get().started_ms));
      });
  observe_transfer("gpumigrate_remaining_bytes",
                   "Bytes that open migrations still have to copy, as last reported.",
                   &wire::MigrationProgress::remaining_bytes);
  observe_transfer("gpumigrate_dirty_bytes_per_second",
                   "Rate at which jobs that are being moved change memory.",
                   &wire::MigrationProgress::dirty_bytes_per_second);
  observe_transfer("gpumigrate_throughput_bytes_per_second", "Rate at which open migrations copy.",
                   &wire::MigrationProgress::throughput_bytes_per_second);
}

void Metrics::observe_transfer(const char* name, const char* help,
                               std::uint64_t wire::MigrationProgress::*field) {
  registry_.gauge(name, help, {}, [this, field](Series& out) {
    double sum = 0;
    for (const Migration& m : tables_.migrations.open()) {
      if (m.phase < MigrationPhase::kClosing && m.progress) sum += static_cast<double>((*m.progress).*field);
    }
    out.add(sum);
  });
}

std::string Metrics::mode_of(JobId id) const {
  const Job* job = tables_.jobs.find(id);
  return job == nullptr ? "unknown" : std::string(to_string(job->spec.mode));
}

void Metrics::answered(unsigned status) {
  api_answers.add({std::to_string(status / 100) + "xx"});
}

void Metrics::count_event(const Event& event) {
  events.add({event.kind});
  const Migration* m = event.migration == 0 ? nullptr : tables_.migrations.find(event.migration);
  if (m == nullptr) return;
  if (event.kind == "migration-begun") preparing_.insert(m->id);
  if (m->phase != MigrationPhase::kPreparing && preparing_.erase(m->id) != 0 &&
      m->phase == MigrationPhase::kPrecopy)
    setup_seconds.add({mode_of(m->job)}, seconds(wall_clock_ms() - m->started_ms));
  if (event.kind == "migration-ended") ended(*m);
  if (event.kind == "ranks-measured") ranks_measured(*m);
  if (event.kind == "memory-arrived" && m->target_report)
    memory_follows_seconds.add({}, seconds(m->target_report->memory_follows_ns / kNanosPerMs));
}

void Metrics::ended(const Migration& m) {
  const Values labels = {strategy_text(m.options.strategy), mode_of(m.job)};
  migrations.add({labels[0], labels[1], std::string(to_string(m.result))});
  if (m.source_report) count(*m.source_report);
  if (m.result != MigrationResult::kDone) return;
  migration_seconds.add(labels, seconds(m.ended_ms - m.started_ms));
  if (!m.source_report || !m.target_report) return;
  const auto downtime = compute_downtime(*m.source_report, *m.target_report);
  if (!downtime) return;
  if (m.gang_move != 0 && m.target_report->groups_ns > 0)
    communicators_seconds.add({"moved", communicators_label(m.options.communicators)},
                              seconds(m.target_report->groups_ns / kNanosPerMs));
  downtime_seconds.add(labels, downtime->total() / kMsPerSecond);
  for (const auto& [piece, field] : kPieces) downtime_pieces.add({piece}, (*downtime).*field / kMsPerSecond);
}

void Metrics::ranks_measured(const Migration& lead) {
  rank_skew_seconds.add({}, lead.skew_ms.value_or(0) / kMsPerSecond);
  const std::string when = communicators_label(lead.options.communicators);
  for (const StayingRankTimes& rank : lead.staying) {
    rank_pause_seconds.add({when}, rank.pause_ms / kMsPerSecond);
    communicators_seconds.add({"stayed", when}, rank.groups_ms / kMsPerSecond);
  }
}

void Metrics::count(const wire::SourceReport& report) {
  sent_bytes.add({"chunks"}, static_cast<double>(report.sent_bytes));
  sent_bytes.add({"host"}, static_cast<double>(report.host_bytes + report.host_ahead_bytes));
  sent_bytes.add({"context"}, static_cast<double>(report.context_bytes));
  final_bytes.add({}, static_cast<double>(report.final_bytes));
  wire_bytes.add({}, static_cast<double>(report.wire_bytes));
  dirty_bytes.add({}, static_cast<double>(report.dirty_bytes));
  resent_chunks.add({}, static_cast<double>(report.resent_chunks));
  if (report.rounds != 0) rounds.add({}, report.rounds);
}

}  // namespace ckpt::coordinator
