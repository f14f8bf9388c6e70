// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/migration_views.h"

#include "coordinator/api/optional_text.h"
#include "coordinator/fleet/managed_run_estimate.h"
#include "coordinator/state/report.h"
#include "libckpt/base/clock.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

double ms_of(std::int64_t nanos) {
  return static_cast<double>(nanos) / kNanosPerMs;
}
std::optional<double> ms_if_any(std::int64_t nanos) {
  return nanos <= 0 ? std::nullopt : std::optional(ms_of(nanos));
}
std::optional<std::uint64_t> rate_if_any(std::uint64_t rate) {
  return rate == 0 ? std::nullopt : std::optional(rate);
}
std::vector<std::string> words_of(std::uint8_t allowed) {
  std::vector<std::string> words;
  if ((allowed & wire::kAllowMissing) != 0) words.emplace_back("missing");
  if ((allowed & wire::kAllowNew) != 0) words.emplace_back("new");
  if ((allowed & wire::kAllowChanged) != 0) words.emplace_back("changed");
  return words;
}

api::MigrationProgress progress_view(const wire::MigrationProgress& p) {
  // The dirty rate is known once the second round is over. In round 2, a nonzero estimate shows that the
  // round is over. Only round 1 reports an earlier estimate.
  const bool dirty_rate_known = p.round > 2 || (p.round == 2 && p.estimate_ns != 0);
  api::MigrationProgress view;
  view.round = p.round;
  view.done_bytes = p.done_bytes;
  view.total_bytes = p.total_bytes;
  view.state_bytes = p.state_bytes;
  view.sent_bytes = p.sent_bytes;
  view.remaining_bytes = p.remaining_bytes;
  if (dirty_rate_known) view.dirty_bytes_per_second = p.dirty_bytes_per_second;
  view.throughput_bytes_per_second = p.throughput_bytes_per_second;
  view.wire_bytes_per_second = rate_if_any(p.wire_bytes_per_second);
  view.estimate_ms = ms_if_any(p.estimate_ns);
  if (p.eta_ns >= 0) view.eta_ms = ms_of(p.eta_ns);
  return view;
}

api::PauseBreakdown breakdown_view(const Downtime& d) {
  return {.quiesce = d.quiesce,
          .final_copy = d.final_copy,
          .verify = d.verify,
          .commit = d.commit,
          .context = d.context,
          .host = d.host,
          .fill = d.fill,
          .restore = d.restore,
          .resume = d.resume,
          .communicators = d.communicators};
}

std::optional<api::ManagedRunEstimate> under_run_view(const std::optional<ManagedRunEstimate>& saved) {
  if (!saved) return std::nullopt;
  api::ManagedRunEstimate view{
      .device_bytes = saved->device_bytes, .device_ms = saved->device_ms, .bound_ms = saved->bound_ms};
  if (saved->bound_all_dirty_ms != 0) view.bound_all_dirty_ms = saved->bound_all_dirty_ms;
  return view;
}

void add_source(const wire::SourceReport& source, api::MigrationReport& view) {
  view.rounds = source.rounds;
  view.state_bytes = source.state_bytes;
  view.sent_bytes = source.sent_bytes;
  view.wire_bytes = source.wire_bytes;
  view.dirty_bytes = source.dirty_bytes;
  view.context_bytes = source.context_bytes;
  view.link_bytes_per_second = rate_if_any(source.link_bytes_per_second);
  view.scan_bytes_per_second = rate_if_any(source.scan_bytes_per_second);
  view.scan_ms = ms_if_any(source.scan_ns);
  // Once the final round is acknowledged, a copy time of zero is a valid value, because that round may find
  // nothing to copy.
  if (source.last_ack_ns != 0) view.copy_ms = ms_of(source.copy_ns);
  view.estimate_ms = ms_if_any(source.estimate_ns);
  if (source.estimate) view.estimate_breakdown_ms = breakdown_view(breakdown_of(*source.estimate));
}

void add_pause(const Migration& m, api::MigrationReport& view) {
  const auto downtime = compute_downtime(*m.source_report, *m.target_report);
  if (!downtime) return;
  view.downtime_ms = downtime->total();
  view.downtime_breakdown_ms = breakdown_view(*downtime);
  view.driver_ms = downtime->context;  // the time of the driver's own checkpoint and restore; no lower bound
                                       // is computed for them
  view.limit_kept = downtime->total() <= ms_of(m.options.max_downtime_ns);
  view.under_run = under_run_view(compute_managed_run_estimate(*m.source_report, *downtime));
  if (const auto bound = compute_bound(*m.source_report, *m.target_report, *downtime)) {
    view.bound_ms = bound->ms;
    view.bound_by = std::string(bound->by);
  }
}

void add_ranks(const Migration& m, api::MigrationReport& view) {
  view.communicators = std::string(record::name_of(m.options.communicators));
  if (m.target_report) view.communicators_ms = ms_of(m.target_report->groups_ns);
  view.staying.emplace();
  for (const StayingRankTimes& times : m.staying)
    view.staying->push_back({.rank = times.rank,
                             .pause_ms = times.pause_ms,
                             .communicators_ms = times.groups_ms,
                             .to_barrier_ms = times.to_barrier_ms});
}

}  // namespace

api::Event event_view(const Event& event) {
  return {.id = event.id,
          .time = time_text(event.time_ms),
          .kind = event.kind,
          .job = event.job == 0 ? std::nullopt : std::optional(job_text(event.job)),
          .migration = event.migration == 0 ? std::nullopt : std::optional(migration_text(event.migration)),
          .node = text_if_any(event.node),
          .text = event.text};
}

api::MigrateOptions options_view(const wire::MigrateOptions& options) {
  api::MigrateOptions view;
  view.max_downtime_ms = ms_of(options.max_downtime_ns);
  view.if_not_converged = record::name_of(options.if_not_converged);
  view.bandwidth = options.bandwidth_bytes_per_second;
  view.max_rounds = options.max_rounds;
  view.codec = record::name_of(options.codec);
  view.shadow_memory_bytes = options.shadow_memory_bytes;
  view.slowdown_percent = static_cast<double>(options.slowdown_permille) / 10;
  if (!options.new_argv.empty()) view.exec = api::Command{options.new_argv};
  view.allow = words_of(options.allowed_differences);
  view.communicators = record::name_of(options.communicators);
  view.connections = record::name_of(options.connections);
  return view;
}

api::MigrationReport report_view(const Migration& m) {
  api::MigrationReport view;
  view.id = migration_text(m.id);
  view.job = job_text(m.job);
  view.result = to_string(m.result);
  view.error = text_if_any(m.error);
  view.from = to_text(m.from);
  view.to = to_text(m.to);
  view.strategy = record::name_of(m.options.strategy);
  view.codec = record::name_of(m.options.codec);
  view.network = text_if_any(m.network);
  view.transport = text_if_any(m.transport);
  view.total_ms = m.ended_ms - m.started_ms;
  view.incarnation = m.incarnation;
  view.max_downtime_ms = ms_of(m.options.max_downtime_ns);
  view.to_barrier_ms = to_barrier_ms(m);
  view.skew_ms = m.skew_ms;
  if (m.source_report) add_source(*m.source_report, view);
  if (m.target_report) {
    view.verified = m.target_report->verified;
    view.memory_follows_bytes = m.target_report->memory_follows_bytes;
    view.memory_follows_ms = ms_if_any(m.target_report->memory_follows_ns);
    view.remarks = m.target_report->remarks;
  }
  if (m.result == MigrationResult::kDone && m.source_report && m.target_report) add_pause(m, view);
  if (m.gang_move != 0) add_ranks(m, view);
  return view;
}

api::Migration migration_view(const Migration& m) {
  api::Migration view;
  view.id = migration_text(m.id);
  view.revision = m.revision;
  view.job = job_text(m.job);
  view.job_name = m.job_name;
  view.state = state_text(m);
  view.open = m.open();
  view.from = to_text(m.from);
  view.to = to_text(m.to);
  view.strategy = record::name_of(m.options.strategy);
  view.options = options_view(m.options);
  if (m.expected_pause_ms > 0) view.expected_pause_ms = m.expected_pause_ms;
  view.reason = text_if_any(m.reason);
  view.started = time_if_any(m.started_ms);
  view.ended = time_if_any(m.ended_ms);
  view.abort_requested = m.abort_cause == AbortCause::kUser;
  if (m.progress) view.progress = progress_view(*m.progress);
  view.runs_at = to_text(m.runs_at == Side::kTarget ? m.to : m.from);
  if (m.gang_move != 0) view.gang_move = migration_text(m.gang_move);
  if (m.open()) return view;
  view.result = std::string(to_string(m.result));
  view.exit_code = exit_code_of(m.result);
  view.error = text_if_any(m.error);
  view.report = report_view(m);
  return view;
}

json migration_json(const Migration& migration) {
  return record::to_answer(migration_view(migration));
}

}  // namespace ckpt::coordinator
