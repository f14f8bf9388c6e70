// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/migration_outcomes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/policies/placement/placement.h"
#include "coordinator/state/report.h"
#include "coordinator/state/usual_pause.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr double kMsPerSecond = 1e3;
constexpr std::size_t kMaxRemarks = 8;
constexpr std::size_t kMaxRemarkBytes = 1000;

// Limits the texts that an agent may have stored with each move.
void limit_remarks(std::vector<std::string>& remarks) {
  if (remarks.size() > kMaxRemarks) remarks.resize(kMaxRemarks);
  for (std::string& remark : remarks) {
    if (remark.size() > kMaxRemarkBytes) remark.resize(kMaxRemarkBytes);
  }
}

// Returns why a migration had not ended when its timeout fired, for display to users.
std::string_view waited_for(const Migration& m) {
  switch (m.phase) {
    case MigrationPhase::kPreparing:
      return "the standby was not ready";
    case MigrationPhase::kPrecopy:
      return "the first round had not ended";
    case MigrationPhase::kGranted:
      return m.progress && m.progress->remaining_bytes == 0
                 ? "all memory was copied, but the job reached no barrier"
                 : "the copy had not converged";
    case MigrationPhase::kVerified:
    case MigrationPhase::kCommitted:
    case MigrationPhase::kClosing:
    case MigrationPhase::kClosed:
      break;
  }
  return "the handover had not ended";
}

MigrationResult aborted_as(AbortCause cause, ErrorCode reason) {
  switch (cause) {
    case AbortCause::kUser:
      return MigrationResult::kInterrupted;
    case AbortCause::kTimeout:
      return MigrationResult::kTimedOut;
    case AbortCause::kTarget:
      return MigrationResult::kFailed;
    case AbortCause::kNone:
      break;
  }
  // These codes count as a refusal or a timeout even after the copy has begun. A side may find only during
  // the copy that it must refuse (tensors that do not match), or that the job never pauses.
  switch (reason) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kRefused:
    case ErrorCode::kNotSupported:
      return MigrationResult::kRefused;
    case ErrorCode::kTimedOut:
      return MigrationResult::kTimedOut;
    default:
      return MigrationResult::kFailed;
  }
}

// The time that a decided migration waits for missing measurements of a side.
constexpr std::chrono::seconds kMeasurementsWait{3};
// The time that an abandoned migration waits until its job runs at the source again. A process of several GiB
// may have to be restored in place.
constexpr std::chrono::seconds kResumeWait{60};

std::vector<JobRank> ranks_at(const std::string& node, const std::vector<wire::RankSpec>& specs) {
  std::vector<JobRank> ranks;
  for (const wire::RankSpec& spec : specs) {
    JobRank& rank = ranks.emplace_back();
    rank.rank = spec.rank;
    rank.place = Place(node, spec.gpu_index);
  }
  return ranks;
}

// Checks whether the job's record agrees with the migration's. A crash may have happened between the two
// writes.
bool is_followed(const Migration& m, const Job* job) {
  const std::string& node = m.runs_at == Side::kTarget ? m.to.node : m.from.node;
  return job == nullptr || (job->incarnation == m.incarnation && job->segments.back().node == node);
}

}  // namespace

MigrationOutcomes::MigrationOutcomes(Dependencies deps) : deps_(std::move(deps)) {
  deps_.jobs.changed().subscribe([this] {
    if (!timers_.empty()) control::asio::post(deps_.executor, [this] { close_measured(); });
  });
}

void MigrationOutcomes::on_report(Migration& m, const migration::Report& report, Incarnation owner) {
  using migration::ReportKind;
  if (m.phase >= MigrationPhase::kClosing) return;  // a report that was repeated after a restart
  switch (report.kind) {
    case ReportKind::kPrepared:
      return enter(m, MigrationPhase::kPrecopy);
    case ReportKind::kGranted:
      return enter(m, MigrationPhase::kGranted);
    case ReportKind::kVerified:
      return enter(m, MigrationPhase::kVerified);
    case ReportKind::kCommitted:
      return enter(m, MigrationPhase::kCommitted);
    case ReportKind::kRunsAtTarget:
      return runs_at(m, Side::kTarget, report.k);
    case ReportKind::kRunsAtSource:
      return runs_at(m, Side::kSource, report.k);
    case ReportKind::kRefused:
      return decide(m, MigrationResult::kRefused, report.reason.text, owner);
    case ReportKind::kAborted:
    case ReportKind::kClosedSource:
      // The row is read, because a restarted machine no longer knows whether the job ran at the target.
      if (m.ran_at_target) return decide(m, MigrationResult::kRestored, report.reason.text, owner);
      // The row's cause decides, because the machine knows only the cluster's timeout, not the timeout of
      // this migration.
      if (m.abort_cause == AbortCause::kTimeout)
        return decide(
            m, MigrationResult::kTimedOut,
            fmt::format("The migration did not finish within {} ms: {}", m.timeout_ms, waited_for(m)), owner);
      return decide(m, aborted_as(m.abort_cause, report.reason.code), report.reason.text, owner);
    case ReportKind::kRestored:
      return decide(m, MigrationResult::kRestored, report.reason.text, owner);
    case ReportKind::kClosedTarget:
      return decide(m, MigrationResult::kDone, {}, owner);
    case ReportKind::kAbortTooLate:
      m.abort_cause = AbortCause::kNone;
      deps_.table.save(m);  // otherwise a restarted coordinator would repeat the abort
      return deps_.events.add("migration-phase", "too late to abort migration " + label(m), m.to.node, m.job,
                              m.id);
    case ReportKind::kForgotten:
      m.forgotten = true;
      deps_.table.save(m);
      return deps_.events.add("migration-found",
                              fmt::format("migration {} is open, but this coordinator's store lacks its "
                                          "progress: the coordinator requests the records of {} and {}",
                                          label(m), m.from.node, m.to.node),
                              {}, m.job, m.id);
    case ReportKind::kWaits:
    case ReportKind::kReleased:
    case ReportKind::kGaveUp:
    case ReportKind::kJobDied:
      return;  // these reports concern only the agents
  }
}

void MigrationOutcomes::enter(Migration& m, MigrationPhase phase) {
  if (phase <= m.phase) return;
  m.phase = phase;
  deps_.table.save(m);
  deps_.events.add("migration-phase", fmt::format("migration {} is {}", label(m), to_string(phase)), {},
                   m.job, m.id);
}

void MigrationOutcomes::runs_at(Migration& m, Side side, Incarnation k) {
  m.runs_at = side;
  m.incarnation = k;
  m.ran_at_target = m.ran_at_target || side == Side::kTarget;
  deps_.table.save(m);
  deps_.table.moved().notify(m.job);
  const wire::MigrationPlan* plan = deps_.table.plan_of(m.id);
  if (plan == nullptr) return;
  const bool target = side == Side::kTarget;
  const bool new_instance = target && !wire::is_swap(*plan);
  const Segment segment(target ? m.to.node : m.from.node, new_instance ? m.base + 1 : plan->spec.incarnation);
  const std::vector<wire::RankSpec>& specs = target ? plan->target_ranks : plan->spec.ranks;
  lifecycle::MoveRunsAt event{k, segment, ranks_at(segment.node, specs), {}};
  if (const auto& argv = plan->options.new_argv; !argv.empty()) event.argv = target ? argv : plan->spec.argv;
  if (deps_.jobs.find(m.job) == nullptr) return;
  deps_.job_runner.fact(m.job, std::move(event));
  deps_.job_runner.reevaluate(m.job, deps_.nodes.find(segment.node));
}

void MigrationOutcomes::decide(Migration& m, MigrationResult result, const std::string& error,
                               Incarnation owner) {
  m.result = result;
  m.error = error.empty() && result != MigrationResult::kDone
                ? "The job stayed at the source; no side reported a reason"
                : error;
  const Side side = result == MigrationResult::kDone ? Side::kTarget : Side::kSource;
  if (m.runs_at == side) {
    if (!is_followed(m, deps_.jobs.find(m.job))) runs_at(m, side, m.incarnation);
  } else if (side == Side::kTarget) {
    runs_at(m, side, m.base + 1);
  } else {
    // From its barrier the job continues with its own incarnation, unless it was lent a higher one and
    // reports it.
    runs_at(m, side, owner == 0 ? m.base : owner);
  }
  m.phase = MigrationPhase::kClosing;
  deps_.table.save(m);
  deps_.table.moved().notify(m.job);
  close_when_measured(m);
}

// Updates the incarnation of a decided migration's job. A job that continued through a later migration or an
// image is not changed.
void MigrationOutcomes::on_owner(Migration& m, Incarnation owner) {
  if (m.phase < MigrationPhase::kClosing || owner == 0 || owner == m.incarnation) return;
  const Job* job = deps_.jobs.find(m.job);
  if (job == nullptr || job->incarnation != m.incarnation) return;
  if (deps_.table.is_newest_of_job(m)) runs_at(m, m.runs_at, owner);
}

void MigrationOutcomes::on_source_report(Migration& m, const wire::SourceReport& report) {
  m.source_report = report;
  deps_.table.save(m);
  close_when_measured(m);
}

void MigrationOutcomes::on_target_report(Migration& m, const wire::TargetReport& report) {
  const bool is_first = !m.target_report.has_value();
  m.target_report = report;
  limit_remarks(m.target_report->remarks);
  deps_.table.save(m);
  for (const std::string& remark : m.target_report->remarks) {
    if (is_first) deps_.events.add("migration-remark", m.job_name + ": " + remark, m.to.node, m.job, m.id);
  }
  close_when_measured(m);
}

void MigrationOutcomes::on_memory_arrived(Migration& m, const wire::TargetReport& report) {
  if (!m.target_report || m.target_report->memory_follows_ns > 0) return;
  m.target_report->memory_follows_ns = report.memory_follows_ns;
  m.target_report->memory_follows_bytes = report.memory_follows_bytes;
  deps_.table.save(m);
  deps_.events.add(
      "memory-arrived",
      fmt::format("{} of host memory of {} arrived at the target within {:.1f} s after the job continued",
                  bytes_text(report.memory_follows_bytes), m.job_name,
                  static_cast<double>(report.memory_follows_ns / kNanosPerMs) / kMsPerSecond),
      m.to.node, m.job, m.id);
}

void MigrationOutcomes::close_when_measured(Migration& m) {
  if (m.phase != MigrationPhase::kClosing) return;
  const bool moved = m.result == MigrationResult::kDone;
  const bool measured = m.source_report.has_value() && m.target_report.has_value();
  if (moved ? measured : !job_stands_still(m)) return close(m);
  auto& timer = timers_[m.id];
  if (timer) return;
  timer =
      std::make_shared<control::asio::steady_timer>(deps_.executor, moved ? kMeasurementsWait : kResumeWait);
  timer->async_wait([this, id = m.id, moved, timer](boost::system::error_code code) {
    if (code) return;
    Migration& late = *deps_.table.find(id);
    if (!moved) late.error += " (the job has not continued at the source yet)";
    spdlog::warn("migration {} is closed {}", migration_text(id),
                 moved ? "without all measurements" : "before the job continues");
    close(late);
  });
}

// Returns whether the source owns the job again but the process does not run yet.
bool MigrationOutcomes::job_stands_still(const Migration& m) const {
  const Job* job = deps_.jobs.find(m.job);
  return job != nullptr && holds_gpu(job->state) && job->node() == m.from.node &&
         job->phase == wire::JobPhase::kPaused && deps_.nodes.connected(m.from.node);
}

void MigrationOutcomes::close_measured() {
  std::vector<MigrationId> waiting;
  for (const auto& [id, timer] : timers_) waiting.push_back(id);
  for (const MigrationId id : waiting) close_when_measured(*deps_.table.find(id));
}

void MigrationOutcomes::note_pause(Job& job, const Migration& m) {
  if (!m.source_report || !m.target_report) return;
  const auto downtime = compute_downtime(*m.source_report, *m.target_report);
  if (!downtime) return;
  job.last_downtime_ms = downtime->total();
  if (const auto pause = pause_of(*m.source_report, *downtime)) add_pause(job.pauses, *pause);
  deps_.jobs.save(job);
}

void MigrationOutcomes::close(Migration& m) {
  if (!m.open()) return;
  deps_.table.close(m);
  if (const auto timer = timers_.find(m.id); timer != timers_.end()) {
    timer->second->cancel();
    timers_.erase(timer);
  }
  Job* job = deps_.jobs.find(m.job);
  if (job != nullptr) deps_.job_runner.reevaluate(m.job, deps_.nodes.find(job->node()));
  if (job != nullptr && job->state == JobState::kLost) m.result = MigrationResult::kLost;
  if (job != nullptr && m.result == MigrationResult::kDone) note_pause(*job, m);
  deps_.table.save(m);
  const std::string where = m.result == MigrationResult::kLost
                                ? std::string("the job is lost")
                                : "the job runs at " + to_text(m.runs_at == Side::kTarget ? m.to : m.from);
  deps_.events.add("migration-ended",
                   fmt::format("migration {} is {}{}, {}", label(m), to_string(m.result),
                               m.error.empty() ? "" : " (" + m.error + ")", where),
                   {}, m.job, m.id);
}

}  // namespace ckpt::coordinator
