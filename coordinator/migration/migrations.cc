// SPDX-License-Identifier: Apache-2.0
// Requests, the state that people see, and what agents report. Messages of the switch:
// migration_switches.cc.
#include "coordinator/migration/migrations.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/state/report.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {
namespace {

// What a migration that ran into its timeout was waiting for, for people.
std::string_view waited_for(const Migration& m) {
  switch (m.phase) {
    case MigrationPhase::kPreparing:
      return "the standby was not ready";
    case MigrationPhase::kPrecopy:
      return "the first round had not ended";
    case MigrationPhase::kGranted:
      return m.progress && m.progress->remaining_bytes == 0 ? "all was copied, but the job reached no barrier"
                                                            : "the copy had not converged";
    case MigrationPhase::kVerified:
    case MigrationPhase::kCommitted:
    case MigrationPhase::kClosing:
    case MigrationPhase::kClosed:
      break;
  }
  return "the switch had not ended";
}

MigrationResult aborted_as(AbortCause cause, ErrorCode reason) {
  switch (cause) {
    case AbortCause::kUser:
      return MigrationResult::kInterrupted;
    case AbortCause::kTimeout:
      return MigrationResult::kTimedOut;
    case AbortCause::kNone:
      break;
  }
  // A side may find only while it copies that it must refuse (tensors that do not match), or that the job
  // never pauses.
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

using wire::Party;

// How long a decided migration waits for measurements that a side still owes.
constexpr std::chrono::seconds kMeasurementsWait{3};
// How long one that was given up waits until the job runs at its source again: a process of several GiB may
// have to be put back.
constexpr std::chrono::seconds kResumeWait{60};

std::string label(const Migration& m) {
  return migration_text(m.id) + " of " + m.job_name;
}

std::vector<JobRank> ranks_at(const std::string& node, const std::vector<wire::RankSpec>& specs) {
  std::vector<JobRank> ranks;
  for (const wire::RankSpec& spec : specs) {
    JobRank& rank = ranks.emplace_back();
    rank.rank = spec.rank;
    rank.place = Place(node, spec.gpu_index);
  }
  return ranks;
}

std::vector<wire::RankPlace> rank_places(const wire::MigrationPlan& plan) {
  std::vector<wire::RankPlace> places;
  for (std::size_t i = 0; i < plan.spec.ranks.size(); ++i)
    places.emplace_back(plan.spec.ranks[i].rank, plan.source_node,
                        std::to_string(plan.spec.ranks[i].gpu_index), plan.target_node,
                        std::to_string(plan.target_ranks[i].gpu_index));
  return places;
}

// A crash may have come between the migration's record and the job's.
bool is_followed(const Migration& m, const Job* job) {
  const std::string& node = m.runs_at == Side::kTarget ? m.to.node : m.from.node;
  return job == nullptr || (job->incarnation == m.incarnation && job->segments.back().node == node);
}

}  // namespace

Result<Migration*> MigrationTable::begin(const Job& job, const Request& request, wire::MigrationPlan plan) {
  if (const Migration* open = open_of(job.id))
    return Error(ErrorCode::kRefused, "Migration " + label(*open) + " is open");
  Migration m;
  CKPT_TRY(id, parts_.store.next_migration_id());
  m.id = id;
  m.job = job.id;
  m.job_name = job.spec.name;
  m.from = job.ranks.front().place;
  m.to = request.to;
  m.options = request.options;
  m.timeout_ms = request.timeout_ms;
  m.why = request.why;
  m.base = job.incarnation;
  m.incarnation = job.incarnation;
  m.started_ms = wall_clock_ms();
  CKPT_TRYV(parts_.store.put(m));
  Migration& kept = migrations_.emplace(id, std::move(m)).first->second;
  index(kept);
  migration::SwitchInfo info(id, job.id, kept.base, rank_places(plan), wire::encode(plan));
  plans_[id] = std::move(plan);
  unsettled_.insert(id);
  parts_.events.add("migration-begun",
                    fmt::format("migration {} from {} to {}{}", label(kept), to_text(kept.from),
                                to_text(kept.to), kept.why.empty() ? "" : ": " + kept.why),
                    kept.from.node, kept.job, id);
  const bool source_connected = parts_.nodes.connected(kept.from.node);
  const bool target_connected = parts_.nodes.connected(kept.to.node);
  if (auto begun = driver_.begin(std::move(info), source_connected, target_connected); !begun) {
    decide(kept, MigrationResult::kRefused, begun.assume_error().to_string());
    return begun.assume_error();
  }
  return &kept;
}

control::Task<Result<Migration*>> MigrationTable::begun(MigrationId id) {
  co_await driver_.caught_up(id);
  const auto at = migrations_.find(id);
  if (at == migrations_.end())
    co_return Error(ErrorCode::kNotFound, "There is no migration " + migration_text(id));
  if (driver_.switches().find(id) == nullptr) co_return Error(ErrorCode::kRefused, at->second.error);
  co_return &at->second;
}

Result<void> MigrationTable::recover(const std::string& node, migration::SwitchInfo info) {
  const MigrationId id = info.migration;
  if (knows(id)) return ok();
  CKPT_TRY(plan, wire::decode_plan(info.plan));
  const bool takes_part = plan.source_node == node || plan.target_node == node;
  if (id == 0 || info.job == 0 || info.base == 0 || plan.spec.ranks.empty() || plan.target_ranks.empty() ||
      !takes_part)
    return Error(ErrorCode::kInvalidArgument, "Node " + node + " describes no migration of its own");
  CKPT_TRYV(parts_.store.count_above(0, id));
  entry(info);
  unsettled_.insert(id);
  CKPT_TRYV(driver_.recover(std::move(info)));
  for (const std::string& side : {plan.source_node, plan.target_node}) {
    if (const Node* known = parts_.nodes.find(side); known != nullptr && known->connected())
      tell_presence(*known, true);
  }
  return ok();
}

bool MigrationTable::unsettled_of(JobId job) const {
  const auto of = of_job_.find(job);
  return of != of_job_.end() && std::any_of(of->second.begin(), of->second.end(),
                                            [this](MigrationId id) { return unsettled_.contains(id); });
}

Result<void> MigrationTable::abort(MigrationId id, const std::string& why) {
  const auto at = migrations_.find(id);
  if (at == migrations_.end())
    return Error(ErrorCode::kNotFound, "There is no migration " + migration_text(id));
  Migration& m = at->second;
  if (m.phase == MigrationPhase::kCommitted ||
      (m.phase >= MigrationPhase::kClosing && m.runs_at == Side::kTarget))
    return Error(ErrorCode::kRefused, "Too late to abort " + label(m) + ": it runs at " + to_text(m.to));
  if (m.phase >= MigrationPhase::kClosing)
    return Error(ErrorCode::kRefused,
                 "Migration " + label(m) + " is over; the job runs at " + to_text(m.from));
  const wire::Reason reason(ErrorCode::kAborted, why.empty() ? "Asked to abort" : why);
  driver_.on_event(id, migration::AbortRequested(false, reason));
  return ok();
}

control::Task<Result<void>> MigrationTable::resolve(MigrationId id, Side side) {
  const Migration* asked = find(id);
  if (asked == nullptr) co_return Error(ErrorCode::kNotFound, "There is no migration " + migration_text(id));
  if (asked->phase >= MigrationPhase::kClosing)
    co_return Error(ErrorCode::kRefused, "Migration " + label(*asked) + " is over already");
  const migration::ResolveRequested event(side);
  CKPT_CO_TRYV(co_await driver_.handle(id, event));
  if (const Migration* resolved = find(id); resolved != nullptr)
    parts_.events.add(
        "migration-phase",
        fmt::format("migration {} resolved by hand: keeps the {}", label(*resolved), to_string(side)), {},
        resolved->job, id);
  co_return ok();
}

control::Task<Result<void>> MigrationTable::set_limits(MigrationId id,
                                                       std::optional<std::int64_t> max_downtime_ns,
                                                       std::optional<std::uint64_t> bandwidth) {
  constexpr std::chrono::seconds kAnswerTime{10};
  const auto at = migrations_.find(id);
  if (at == migrations_.end())
    co_return Error(ErrorCode::kNotFound, "There is no migration " + migration_text(id));
  Migration& m = at->second;
  if (m.phase > MigrationPhase::kGranted)
    co_return Error(ErrorCode::kRefused, "Migration " + label(m) + " copies no more: limits have no effect");
  wire::SetLimits limits;
  limits.migration = id;
  if (max_downtime_ns) limits.max_downtime_ns = *max_downtime_ns;
  if (bandwidth) limits.bandwidth_bytes_per_second = static_cast<std::int64_t>(*bandwidth);
  CKPT_CO_TRYV(co_await parts_.nodes.call(m.from.node, limits, kAnswerTime));
  if (max_downtime_ns) m.options.max_downtime_ns = *max_downtime_ns;
  if (bandwidth) m.options.bandwidth_bytes_per_second = *bandwidth;
  save(m);
  parts_.events.add("migration-limits", "limits of migration " + label(m) + " changed", m.from.node, m.job,
                    id);
  co_return ok();
}

const Migration* MigrationTable::find(MigrationId id) const {
  const auto at = migrations_.find(id);
  return at == migrations_.end() ? nullptr : &at->second;
}

// Only the newest may be: the next one begins when it is decided.
const Migration* MigrationTable::open_of(JobId job) const {
  const auto open = open_of_job_.find(job);
  if (open == open_of_job_.end()) return nullptr;
  const Migration& newest = migrations_.at(open->second);
  return newest.phase < MigrationPhase::kClosing ? &newest : nullptr;
}

bool MigrationTable::is_closing(JobId job) const {
  const auto of = of_job_.find(job);
  return of != of_job_.end() && migrations_.at(*of->second.rbegin()).phase == MigrationPhase::kClosing;
}

std::vector<std::reference_wrapper<const Migration>> MigrationTable::open() const {
  std::vector<std::reference_wrapper<const Migration>> found;
  found.reserve(open_.size());
  for (const MigrationId id : open_) found.emplace_back(migrations_.at(id));
  visited_ += found.size();
  return found;
}

std::set<MigrationId> MigrationTable::of(JobId job) const {
  const auto found = of_job_.find(job);
  return found == of_job_.end() ? std::set<MigrationId>() : found->second;
}

Migration* MigrationTable::checked(MigrationId id, const Node& node, Side side) {
  const auto at = migrations_.find(id);
  const bool known = at != migrations_.end() &&
                     node.row.name == (side == Side::kSource ? at->second.from.node : at->second.to.node);
  if (known) return &at->second;
  spdlog::warn("node {} reports on migration {}, of which it is not the {}", node.row.name,
               migration_text(id), to_string(side));
  return nullptr;
}

void MigrationTable::on_progress(const Node& node, const wire::MigrationProgress& progress) {
  Migration* m = checked(progress.migration, node, Side::kSource);
  if (m == nullptr || m->phase >= MigrationPhase::kClosing) return;
  m->progress = progress;
  touch(*m);
}

void MigrationTable::on_source_report(const Node& node, const wire::SourceReport& report) {
  Migration* m = checked(report.migration, node, Side::kSource);
  if (m == nullptr || !m->open()) return;
  m->source_report = report;
  save(*m);
  settle_when_measured(*m);
}

void MigrationTable::on_target_report(const Node& node, const wire::TargetReport& report) {
  Migration* m = checked(report.migration, node, Side::kTarget);
  if (m == nullptr || !m->open()) return;
  m->target_report = report;
  save(*m);
  settle_when_measured(*m);
}

void MigrationTable::on_report(Migration& m, const migration::Report& report) {
  using migration::ReportKind;
  if (m.phase >= MigrationPhase::kClosing) return;  // said again after a restart
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
      return decide(m, MigrationResult::kRefused, report.reason.text);
    case ReportKind::kAborted:
    case ReportKind::kClosedSource:
      // A machine that was restarted does not know any more what had run.
      if (m.ran_at_target) return decide(m, MigrationResult::kRestored, report.reason.text);
      // The machine knows the cluster's timeout only, not this migration's.
      if (m.abort_cause == AbortCause::kTimeout)
        return decide(m, MigrationResult::kTimedOut,
                      fmt::format("Not done within {} ms: {}", m.timeout_ms, waited_for(m)));
      return decide(m, aborted_as(m.abort_cause, report.reason.code), report.reason.text);
    case ReportKind::kRestored:
      return decide(m, MigrationResult::kRestored, report.reason.text);
    case ReportKind::kClosedTarget:
      return decide(m, MigrationResult::kDone, {});
    case ReportKind::kAbortTooLate:
      m.abort_cause = AbortCause::kNone;
      return parts_.events.add("migration-phase", "too late to abort migration " + label(m), m.to.node, m.job,
                               m.id);
    case ReportKind::kForgotten:
      m.forgotten = true;
      save(m);
      return parts_.events.add("migration-found",
                               fmt::format("migration {} is open, and this coordinator's store does not know "
                                           "how far it is: {} and {} are asked",
                                           label(m), m.from.node, m.to.node),
                               {}, m.job, m.id);
    case ReportKind::kWaits:
    case ReportKind::kReleased:
    case ReportKind::kGaveUp:
    case ReportKind::kJobDied:
      return;  // the agents' own
  }
}

void MigrationTable::enter(Migration& m, MigrationPhase phase) {
  if (phase <= m.phase) return;
  m.phase = phase;
  save(m);
  parts_.events.add("migration-phase", fmt::format("migration {} is {}", label(m), to_string(phase)), {},
                    m.job, m.id);
}

void MigrationTable::runs_at(Migration& m, Side side, Incarnation k) {
  m.runs_at = side;
  m.incarnation = k;
  m.ran_at_target = m.ran_at_target || side == Side::kTarget;
  save(m);
  moved_(m.job);
  const auto plan = plans_.find(m.id);
  if (plan == plans_.end()) return;
  const wire::MigrationPlan& p = plan->second;
  const bool target = side == Side::kTarget;
  const bool new_instance = target && !wire::is_swap(p);
  const Segment segment(target ? m.to.node : m.from.node, new_instance ? m.base + 1 : p.spec.incarnation);
  parts_.jobs.runs_at(m.job, k, segment, ranks_at(segment.node, target ? p.target_ranks : p.spec.ranks),
                      parts_.nodes.find(segment.node));
}

void MigrationTable::decide(Migration& m, MigrationResult result, const std::string& error) {
  m.result = result;
  m.error = error.empty() && result != MigrationResult::kDone
                ? "The job was left at the source; no side said why"
                : error;
  const Side side = result == MigrationResult::kDone ? Side::kTarget : Side::kSource;
  if (m.runs_at == side) {
    if (!is_followed(m, parts_.jobs.find(m.job))) runs_at(m, side, m.incarnation);
  } else if (side == Side::kTarget) {
    runs_at(m, side, m.base + 1);
  } else {
    // From its barrier it goes on as what it was, unless it had been lent a higher one: it says so itself.
    const migration::CoordinatorState* state = driver_.switches().find(m.id);
    const Incarnation said = state == nullptr ? 0 : migration::owner_incarnation(*state);
    runs_at(m, side, said == 0 ? m.base : said);
  }
  m.phase = MigrationPhase::kClosing;
  save(m);
  moved_(m.job);
  settle_when_measured(m);
}

// A job that a later migration or an image took on is not this one's to say.
void MigrationTable::take_owners_word(MigrationId id) {
  const auto at = migrations_.find(id);
  const migration::CoordinatorState* state = driver_.switches().find(id);
  if (at == migrations_.end() || state == nullptr || at->second.phase < MigrationPhase::kClosing) return;
  Migration& m = at->second;
  const Incarnation k = migration::owner_incarnation(*state);
  const Job* job = parts_.jobs.find(m.job);
  if (k == 0 || k == m.incarnation || job == nullptr || job->incarnation != m.incarnation) return;
  const bool newest = std::none_of(std::next(at), migrations_.end(),
                                   [&](const auto& later) { return later.second.job == m.job; });
  if (newest) runs_at(m, m.runs_at, k);
}

void MigrationTable::settle_when_measured(Migration& m) {
  if (m.phase != MigrationPhase::kClosing) return;
  const bool moved = m.result == MigrationResult::kDone;
  const bool measured = m.source_report.has_value() && m.target_report.has_value();
  if (moved ? measured : !stands_still(m)) return close(m);
  auto& timer = settle_timers_[m.id];
  if (timer) return;
  timer =
      std::make_shared<control::asio::steady_timer>(parts_.executor, moved ? kMeasurementsWait : kResumeWait);
  timer->async_wait([this, id = m.id, moved, timer](boost::system::error_code code) {
    if (code) return;
    Migration& late = migrations_.at(id);
    if (!moved) late.error += " (the job has not gone on at the source yet)";
    spdlog::warn("migration {} is closed {}", migration_text(id),
                 moved ? "without all measurements" : "before the job goes on");
    close(late);
  });
}

// The job is its source's again, but its process does not go on yet.
bool MigrationTable::stands_still(const Migration& m) const {
  const Job* job = parts_.jobs.find(m.job);
  return job != nullptr && holds_gpu(job->state) && job->node() == m.from.node &&
         job->phase == wire::JobPhase::kPaused && parts_.nodes.connected(m.from.node);
}

void MigrationTable::settle_again() {
  std::vector<MigrationId> waiting;
  for (const auto& [id, timer] : settle_timers_) waiting.push_back(id);
  for (const MigrationId id : waiting) settle_when_measured(migrations_.at(id));
}

void MigrationTable::close(Migration& m) {
  if (!m.open()) return;
  m.phase = MigrationPhase::kClosed;
  m.ended_ms = wall_clock_ms();
  newest_end_ms_ = std::max(newest_end_ms_, m.ended_ms);
  open_.erase(m.id);
  if (const auto of = open_of_job_.find(m.job); of != open_of_job_.end() && of->second == m.id)
    open_of_job_.erase(of);
  plans_.erase(m.id);
  if (const auto timer = settle_timers_.find(m.id); timer != settle_timers_.end()) {
    timer->second->cancel();
    settle_timers_.erase(timer);
  }
  const Job* job = parts_.jobs.find(m.job);
  if (job != nullptr) parts_.jobs.reconsider(m.job, parts_.nodes.find(job->node()));
  if (job != nullptr && job->state == JobState::kLost) m.result = MigrationResult::kLost;
  if (m.result == MigrationResult::kDone && m.source_report && m.target_report) {
    if (const auto downtime = compute_downtime(*m.source_report, *m.target_report))
      parts_.jobs.set_downtime(m.job, downtime->total(), pause_of(*m.source_report, *downtime));
  }
  save(m);
  parts_.events.add("migration-ended",
                    fmt::format("migration {} is {}{}, the job runs at {}", label(m), to_string(m.result),
                                m.error.empty() ? "" : " (" + m.error + ")",
                                to_text(m.runs_at == Side::kTarget ? m.to : m.from)),
                    {}, m.job, m.id);
}

void MigrationTable::save(Migration& m) {
  ++m.revision;
  // What is not recorded in the journal is found anew after a restart.
  if (m.forgotten && m.phase < MigrationPhase::kClosing) return changed_.notify();
  if (auto stored = parts_.store.put(m); !stored)
    spdlog::error("migration {} was not stored: {}", label(m), stored.assume_error().to_string());
  changed_.notify();
}

void MigrationTable::touch(Migration& m) {
  ++m.revision;
  changed_.notify();
}

}  // namespace ckpt::coordinator
