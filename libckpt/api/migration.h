// SPDX-License-Identifier: Apache-2.0
// Migrations as the API shows them (docs/api.md): the coordinator writes these records, and the command reads
// them. Texts are ids, places ("node-a:0") and times (RFC 3339, UTC); `_ms` are milliseconds. An optional
// member without a value is null: it is not known, or does not apply.
// Threads: plain values. Errors: none; libckpt/record/document.h describes how differing answers are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/api/command.h"
#include "libckpt/record/fields.h"

namespace ckpt::api {

// The options of the request, including changes by a later `set`.
struct MigrateOptions {
  std::optional<double> max_downtime_ms;
  std::string if_not_converged;      // the action if the copy does not converge: switch or abort
  std::uint64_t bandwidth = 0;       // the limit of the bandwidth in bytes per second; 0 for no limit
  std::uint32_t max_rounds = 0;      // the maximum number of rounds; 0 for the engine's default
  std::optional<std::string> codec;  // the codec mode: auto, raw, planes or difference
  std::uint64_t shadow_memory_bytes = 0;
  double slowdown_percent = 0;
  std::optional<Command> exec;
  std::vector<std::string> allow;  // the allowed differences: any of missing, new, changed
  std::string communicators;       // when new communicators are made: overlap or in-pause
  std::string connections;         // the action for TCP connections to other programs: refuse the move, or
                                   // reset them at the switch
};
template <std::same_as<MigrateOptions> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("max_downtime_ms", &T::max_downtime_ms),
      record::field("if_not_converged", &T::if_not_converged), record::field("bandwidth", &T::bandwidth),
      record::field("max_rounds", &T::max_rounds), record::field("codec", &T::codec),
      record::field("shadow_memory_bytes", &T::shadow_memory_bytes),
      record::field("slowdown_percent", &T::slowdown_percent), record::field("exec", &T::exec),
      record::field("allow", &T::allow), record::field("communicators", &T::communicators),
      record::field("connections", &T::connections));
}

struct MigrationProgress {
  std::uint32_t round = 0;
  std::uint64_t done_bytes = 0;   // the completed bytes of this round
  std::uint64_t total_bytes = 0;  // the bytes of this round
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t remaining_bytes = 0;
  std::optional<std::uint64_t> dirty_bytes_per_second;  // the rate at which the job changes memory; known
                                                        // once the second round has ended
  std::uint64_t throughput_bytes_per_second = 0;
  std::optional<std::uint64_t> wire_bytes_per_second;
  std::optional<double> estimate_ms;
  std::optional<double> eta_ms;
};
template <std::same_as<MigrationProgress> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("round", &T::round), record::field("done_bytes", &T::done_bytes),
      record::field("total_bytes", &T::total_bytes), record::field("state_bytes", &T::state_bytes),
      record::field("sent_bytes", &T::sent_bytes), record::field("remaining_bytes", &T::remaining_bytes),
      record::field("dirty_bytes_per_second", &T::dirty_bytes_per_second),
      record::field("throughput_bytes_per_second", &T::throughput_bytes_per_second),
      record::field("wire_bytes_per_second", &T::wire_bytes_per_second),
      record::field("estimate_ms", &T::estimate_ms), record::field("eta_ms", &T::eta_ms));
}

// The durations of the consecutive parts of a pause.
struct PauseBreakdown {
  double quiesce = 0;
  double final_copy = 0;
  double verify = 0;
  double commit = 0;
  double context = 0;
  double host = 0;
  double fill = 0;
  double restore = 0;
  double resume = 0;
  double communicators = 0;
};
template <std::same_as<PauseBreakdown> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("quiesce", &T::quiesce), record::field("final", &T::final_copy),
                        record::field("verify", &T::verify), record::field("commit", &T::commit),
                        record::field("context", &T::context), record::field("host", &T::host),
                        record::field("fill", &T::fill), record::field("restore", &T::restore),
                        record::field("resume", &T::resume),
                        record::field("communicators", &T::communicators));
}

// The part of an adopted job's pause that a managed job would not have had.
struct ManagedRunEstimate {
  std::uint64_t device_bytes = 0;
  double device_ms = 0;
  double bound_ms = 0;
  std::optional<double> bound_all_dirty_ms;
};
template <std::same_as<ManagedRunEstimate> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("device_bytes", &T::device_bytes),
                        record::field("device_ms", &T::device_ms), record::field("bound_ms", &T::bound_ms),
                        record::field("bound_all_dirty_ms", &T::bound_all_dirty_ms));
}

// A rank that stayed while other ranks moved.
struct StayingRank {
  std::uint32_t rank = 0;
  double pause_ms = 0;
  double communicators_ms = 0;
  double to_barrier_ms = 0;
};
template <std::same_as<StayingRank> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("rank", &T::rank), record::field("pause_ms", &T::pause_ms),
                        record::field("communicators_ms", &T::communicators_ms),
                        record::field("to_barrier_ms", &T::to_barrier_ms));
}

// The measurements of a migration that has ended. Measurements that no side reported are null.
struct MigrationReport {
  std::string id;
  std::string job;
  std::string result;
  std::optional<std::string> error;
  std::string from;
  std::string to;
  std::string strategy;
  std::optional<std::string> codec;
  std::optional<std::string> network;
  std::optional<std::string> transport;
  std::optional<std::uint32_t> rounds;
  std::optional<std::uint64_t> state_bytes;
  std::optional<std::uint64_t> sent_bytes;
  std::optional<std::uint64_t> wire_bytes;
  std::optional<std::uint64_t> dirty_bytes;
  std::optional<std::uint64_t> context_bytes;
  std::optional<bool> verified;
  std::optional<double> downtime_ms;
  std::optional<std::int64_t> total_ms;
  std::optional<double> bound_ms;
  std::optional<std::string> bound_by;
  std::optional<std::uint64_t> link_bytes_per_second;
  std::optional<std::uint64_t> scan_bytes_per_second;
  std::optional<PauseBreakdown> downtime_breakdown_ms;
  std::optional<ManagedRunEstimate> under_run;
  std::optional<double> scan_ms;
  std::optional<double> copy_ms;
  std::optional<double> estimate_ms;
  std::optional<PauseBreakdown> estimate_breakdown_ms;
  std::optional<double> driver_ms;
  std::optional<std::uint64_t> memory_follows_bytes;
  std::optional<double> memory_follows_ms;
  std::vector<std::string> remarks;
  std::uint64_t incarnation = 0;
  std::optional<double> max_downtime_ms;
  std::optional<bool> limit_kept;
  std::optional<double> to_barrier_ms;
  std::optional<std::string> communicators;
  std::optional<double> communicators_ms;
  std::optional<double> skew_ms;
  std::optional<std::vector<StayingRank>> staying;  // the ranks that stayed; null for a job of one rank
};
template <std::same_as<MigrationReport> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("id", &T::id), record::field("job", &T::job), record::field("result", &T::result),
      record::field("error", &T::error), record::field("from", &T::from), record::field("to", &T::to),
      record::field("strategy", &T::strategy), record::field("codec", &T::codec),
      record::field("network", &T::network), record::field("transport", &T::transport),
      record::field("rounds", &T::rounds), record::field("state_bytes", &T::state_bytes),
      record::field("sent_bytes", &T::sent_bytes), record::field("wire_bytes", &T::wire_bytes),
      record::field("dirty_bytes", &T::dirty_bytes), record::field("context_bytes", &T::context_bytes),
      record::field("verified", &T::verified), record::field("downtime_ms", &T::downtime_ms),
      record::field("total_ms", &T::total_ms), record::field("bound_ms", &T::bound_ms),
      record::field("bound_by", &T::bound_by),
      record::field("link_bytes_per_second", &T::link_bytes_per_second),
      record::field("scan_bytes_per_second", &T::scan_bytes_per_second),
      record::field("downtime_breakdown_ms", &T::downtime_breakdown_ms),
      record::field("under_run", &T::under_run), record::field("scan_ms", &T::scan_ms),
      record::field("copy_ms", &T::copy_ms), record::field("estimate_ms", &T::estimate_ms),
      record::field("estimate_breakdown_ms", &T::estimate_breakdown_ms),
      record::field("driver_ms", &T::driver_ms),
      record::field("memory_follows_bytes", &T::memory_follows_bytes),
      record::field("memory_follows_ms", &T::memory_follows_ms), record::field("remarks", &T::remarks),
      record::field("incarnation", &T::incarnation), record::field("max_downtime_ms", &T::max_downtime_ms),
      record::field("limit_kept", &T::limit_kept), record::field("to_barrier_ms", &T::to_barrier_ms),
      record::field("communicators", &T::communicators),
      record::field("communicators_ms", &T::communicators_ms), record::field("skew_ms", &T::skew_ms),
      record::field("staying", &T::staying));
}

struct Migration {
  std::string id;
  std::uint64_t revision = 0;
  std::string job;
  std::string job_name;
  std::string state;
  bool open = false;
  std::string from;
  std::string to;
  std::string strategy;
  MigrateOptions options;
  std::optional<double> expected_pause_ms;  // the pause that was expected before the migration began
  std::optional<std::string> reason;
  std::optional<std::string> started;
  std::optional<std::string> ended;
  bool abort_requested = false;
  std::optional<MigrationProgress> progress;
  std::optional<std::string> result;  // the result; null while the migration is open, as are the next two
                                      // members
  std::optional<int> exit_code;
  std::optional<std::string> error;
  std::optional<std::string> runs_at;
  std::optional<std::string> gang_move;  // for a rank that moves with others: the id of their common move
  std::optional<MigrationReport> report;
};
template <std::same_as<Migration> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("id", &T::id), record::field("revision", &T::revision), record::field("job", &T::job),
      record::field("job_name", &T::job_name), record::field("state", &T::state),
      record::field("open", &T::open), record::field("from", &T::from), record::field("to", &T::to),
      record::field("strategy", &T::strategy), record::field("options", &T::options),
      record::field("expected_pause_ms", &T::expected_pause_ms), record::field("reason", &T::reason),
      record::field("started", &T::started), record::field("ended", &T::ended),
      record::field("abort_requested", &T::abort_requested), record::field("progress", &T::progress),
      record::field("result", &T::result), record::field("exit_code", &T::exit_code),
      record::field("error", &T::error), record::field("runs_at", &T::runs_at),
      record::field("gang_move", &T::gang_move), record::field("report", &T::report));
}

// The details of one migration. Lists do not contain them.
struct MigrationDetail {
  Migration migration;
  std::vector<std::string> moved_with;  // for a rank that moves with others: the migrations of the other
                                        // ranks
};
template <std::same_as<MigrationDetail> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::migration), record::field("moved_with", &T::moved_with));
}

}  // namespace ckpt::api
