// SPDX-License-Identifier: Apache-2.0
// The part of GangMoves between the state machines and the nodes: messages, the gathering of ranks, and the
// progress in the table.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/gangs/moves/gang_gather.h"
#include "coordinator/gangs/moves/gang_moves.h"
#include "coordinator/migration/move_limit.h"
#include "coordinator/state/report.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using gang::Party;
using gang::Role;

constexpr std::chrono::minutes kLongestCopy{50};  // the time limit for copying data ahead of the pause

// Converts nanoseconds that another process reported. A negative value becomes 0.
double milliseconds_of(std::int64_t nanoseconds) {
  return static_cast<double>(std::max<std::int64_t>(0, nanoseconds)) / static_cast<double>(kNanosPerMs);
}

bool is_bystander(const Party& party) {
  return party.role == Role::kBystander;
}

template <class Test>
bool all_of(const gang::CoordinatorState& state, Role role, Test test) {
  return std::all_of(state.facts.begin(), state.facts.end(),
                     [&](const auto& at) { return at.first.role != role || test(at.second); });
}

}  // namespace

GangMoves::GangMoves(Dependencies deps, gang::GangJournal journal, gang::Timing timing,
                     std::function<void(const Error&)> fatal)
    : deps_(std::move(deps)),
      late_grace_(timing.silence_ms),
      driver_(deps_.executor, std::move(journal), timing, *this, std::move(fatal)) {
  deps_.frames.subscribe(wire::CommitKind::kGang,
                         [this](const Node& node, const wire::CommitMessage& message, std::size_t bytes) {
                           return on_message(node, message, bytes);
                         });
  deps_.table.gang_abort_asked().subscribe(
      [this](MigrationId id, AbortCause cause, const std::string& reason) {
        for (const auto& [row_id, m] : deps_.table.all()) {
          if (m.gang_move != id || m.phase >= MigrationPhase::kClosing) continue;
          Migration& row = *deps_.table.find(row_id);
          row.abort_cause = cause;
          deps_.table.save(row);  // the journal has no record of the abort, so the row stores it and
                                  // restore() repeats it
        }
        driver_.on_event(id, gang::AbortRequested(wire::Reason(ErrorCode::kAborted, reason)));
      });
  deps_.table.gang_resolve_asked().subscribe([this](MigrationId id) { resolve(id); });
}

const gang::GangPlan* GangMoves::plan_of(const gang::GangInfo& info) {
  const auto known = plans_.find(info.migration);
  if (known != plans_.end()) return &known->second;
  auto plan = gang::decode_gang_plan(info.plan);
  if (!plan) return nullptr;
  return &plans_.emplace(info.migration, *std::move(plan)).first->second;
}

std::string GangMoves::node_of(const gang::GangInfo& info, const Party& party) {
  const gang::GangPlan* plan = plan_of(info);
  if (plan == nullptr) return {};
  if (is_bystander(party)) {
    const gang::StayingRank* staying = gang::find_staying(*plan, party.rank);
    return staying == nullptr ? "" : staying->node;
  }
  const gang::MovedRank* moved = gang::find_moved(*plan, party.rank);
  if (moved == nullptr) return {};
  if (const Migration* row = deps_.table.find(moved->migration))
    return party.role == Role::kSource ? row->from.node : row->to.node;
  const auto own = wire::decode_plan(moved->plan);
  if (!own) return {};
  return party.role == Role::kSource ? own->source_node : own->target_node;
}

std::vector<Migration*> GangMoves::rows_of(const gang::GangInfo& info) {
  std::vector<Migration*> rows;
  if (const gang::GangPlan* plan = plan_of(info)) {
    for (const gang::MovedRank& moved : plan->moved)
      if (Migration* row = deps_.table.find(moved.migration)) rows.push_back(row);
  }
  return rows;
}

// ---- Messages ----

void GangMoves::send(const gang::GangInfo& info, const gang::Send& sent) {
  wire::CommitMessage message(info, Party(), sent.to, sent.body);
  if (std::holds_alternative<gang::Prepare>(sent.body)) message.info = info;
  const gang::CoordinatorState* state = driver_.find(info.migration);
  message.asks_for_info =
      state != nullptr && gang::is_asking(*state) && std::holds_alternative<gang::Query>(sent.body);
  const std::string node = node_of(info, sent.to);
  const bool left = deps_.calls.send(node, message);
  spdlog::debug("move of ranks {}: {} to {} ({}){}", migration_text(info.migration), gang::name_of(sent.body),
                gang::to_text(sent.to), node, left ? "" : ": not connected");
}

// Stores the times that a bystander reports. This also works after the move is settled.
void GangMoves::on_times(const Node& node, const wire::CommitMessage& message) {
  Migration* lead = deps_.table.find(message.migration);
  if (lead == nullptr || lead->gang_move != lead->id || !is_bystander(message.from)) return;
  const Job* moved = deps_.jobs.find(lead->job);
  if (moved == nullptr || moved->whole() != message.job) return;
  for (const Job* rank : deps_.jobs.ranks_of(message.job)) {
    const std::uint32_t number = rank->rank_number();
    const bool is_known =
        std::any_of(lead->staying.begin(), lead->staying.end(),
                    [number](const StayingRankTimes& known) { return known.rank == number; });
    if (number != message.from.rank || rank->node() != node.row.name || is_known) continue;
    StayingRankTimes& times = lead->staying.emplace_back();
    times.rank = number;
    times.pause_ms = milliseconds_of(message.times->pause_ns);
    times.groups_ms = milliseconds_of(message.times->groups_ns);
    times.to_barrier_ms = milliseconds_of(message.times->to_barrier_ns);
    deps_.table.save(*lead);
    measure_skew(lead->id);
  }
}

// Computes the skew once every rank has reported. Each rank measures with its own clock from the order to
// stop, which all ranks receive at about the same time.
void GangMoves::measure_skew(MigrationId move) {
  Migration* lead = deps_.table.find(move);
  const Job* rank = lead == nullptr ? nullptr : deps_.jobs.find(lead->job);
  const auto gang = rank == nullptr ? std::nullopt : find_whole(deps_.jobs, rank->whole());
  if (!gang || lead->result != MigrationResult::kDone || lead->skew_ms) return;
  std::vector<double> times;
  double longest_pause = 0;
  for (const StayingRankTimes& staying : lead->staying) {
    if (staying.to_barrier_ms > 0)
      times.push_back(staying.to_barrier_ms);  // an older agent does not report this time
    longest_pause = std::max(longest_pause, staying.pause_ms);
  }
  const auto& all = deps_.table.all();
  for (auto row = all.lower_bound(lead->id); row != all.end(); ++row) {
    const auto own = row->second.gang_move == lead->id ? to_barrier_ms(row->second) : std::nullopt;
    if (own) times.push_back(*own);
  }
  if (times.size() != gang->size) return;
  const auto [shortest, longest] = std::minmax_element(times.begin(), times.end());
  lead->skew_ms = *longest - *shortest;
  deps_.table.save(*lead);
  deps_.events.add("ranks-measured",
                   fmt::format("move of ranks of {}: {:.1f} ms between the first rank at the barrier and the "
                               "last; ranks that stayed were paused for at most {:.1f} ms",
                               gang->name, *lead->skew_ms, longest_pause),
                   "", lead->job, lead->id);
}

// Handles a message. A node may send messages only for its own parties, and only about this move. Messages
// about another gang, or another incarnation of the gang, are refused.
Result<void> GangMoves::on_message(const Node& node, const wire::CommitMessage& message, std::size_t bytes) {
  if (message.times) {
    on_times(node, message);
    return ok();
  }
  const gang::CoordinatorState* state = driver_.find(message.migration);
  const bool is_of_move =
      state != nullptr && state->info.gang == message.job && state->info.base == message.base;
  const bool may_state = is_of_move && node_of(state->info, message.from) == node.row.name;
  const bool is_large = message.to != Party() && (bytes > wire::kMaxBetweenAgentsBytes || message.info);
  if (!may_state || is_large) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn(
          "a message about move of ranks {}, sent by node {} for {}, was dropped ({} similar messages not "
          "logged)",
          migration_text(message.migration), node.row.name, gang::to_text(message.from), *left_out);
    return ok();
  }
  const gang::GangInfo info = state->info;
  if (message.to != Party()) {
    deps_.calls.relay(node_of(info, message.to), message);
    return ok();
  }
  if (message.asks_for_info) {
    wire::CommitMessage answer(info, Party(), message.from, gang::Query{});
    answer.info = info;
    answer.asks_for_info = gang::is_asking(*state);
    deps_.calls.send(node.row.name, answer);
    return ok();
  }
  if (message.info) {
    driver_.on_event(message.migration, gang::PartyAnswered(message.from));
    return ok();
  }
  spdlog::debug("move of ranks {}: {} from {}", migration_text(info.migration), gang::name_of(message.body),
                gang::to_text(message.from));
  driver_.on_message(message.migration, message.from, message.body);
  return ok();
}

// ---- Orders of the state machine ----

void GangMoves::gather(const gang::GangInfo& info) {
  control::spawn(deps_.executor, "gathering ranks", run_gather(info));
}

control::Task<> GangMoves::run_gather(gang::GangInfo info) {
  const gang::GangPlan* plan = plan_of(info);
  const auto attempt = deps_.numbers.next();
  if (plan == nullptr || !attempt) co_return;
  std::vector<RankOrders::Member> members;
  for (const Migration* row : rows_of(info)) {
    RankOrders::Member& member = members.emplace_back();
    member.job = row->job;
    member.incarnation = row->base;
    member.node = row->from.node;
    const Job* job = deps_.jobs.find(row->job);
    member.rank = job == nullptr ? 0 : job->rank_number();
  }
  for (const gang::StayingRank& staying : plan->staying) {
    RankOrders::Member& member = members.emplace_back();
    member.job = staying.job;
    member.rank = staying.rank;
    member.incarnation = staying.incarnation;
    member.node = staying.node;
  }
  RankOrders::Purpose purpose;
  purpose.set = *attempt;
  purpose.migration = info.migration;
  const auto held = co_await hold_at_one_step(
      std::make_shared<RankOrders>(deps_.calls, deps_.executor, purpose, std::move(members)), kLongestCopy);
  const gang::CoordinatorState* state = driver_.find(info.migration);
  const bool is_open = state != nullptr && std::holds_alternative<gang::coordinator::Granted>(state->phase);
  if (held || !is_open) co_return;
  const Error& error = held.error();
  // The abort is only a request. A target that has promised continues nevertheless, because the state
  // machines decide.
  driver_.on_event(info.migration, gang::AbortRequested(wire::Reason(error.code(), error.message())));
}

// Reports that the gang is lost, because every instance has ended, or its node has failed. The ranks' jobs
// then end. The user decides whether to restore the gang from its images, which loses work.
void GangMoves::restore(const gang::GangInfo& info) {
  const auto gang = find_whole(deps_.jobs, info.gang);
  const std::string name = gang ? gang->name : job_text(info.gang);
  deps_.events.add("gang-lost",
                   "neither the ranks of " + name +
                       " nor their targets can continue: they have ended; `restore " + name +
                       " --accept-loss` continues the job from its images",
                   "", info.gang, info.migration);
}

void GangMoves::on_begin_refused(MigrationId id, const Error& error) {
  const auto known = plans_.find(id);
  if (known == plans_.end()) return;
  for (const gang::MovedRank& moved : known->second.moved) {
    Migration* row = deps_.table.find(moved.migration);
    if (row == nullptr) continue;
    deps_.outcomes.decide(*row, MigrationResult::kRefused, error.to_string(), 0);
    deps_.table.mark_settled(row->id);
  }
}

std::chrono::milliseconds GangMoves::duration(MigrationId id, const gang::ArmTimer& timer) const {
  const Migration* m = timer.timer == gang::Timer::kMigration ? deps_.table.find(id) : nullptr;
  if (m == nullptr || m->timeout_ms <= 0) return std::chrono::milliseconds(timer.ms);
  return left_of_limit(*m, wall_clock_ms(), late_grace_);
}

// Treats the parties on disconnected nodes as lost. The operator has confirmed that these nodes run nothing.
void GangMoves::resolve(MigrationId id) {
  const gang::CoordinatorState* state = driver_.find(id);
  if (state == nullptr) return;
  const gang::GangInfo info = state->info;
  for (const Party& party : info.ranks())
    if (!deps_.nodes.connected(node_of(info, party))) driver_.on_event(id, gang::PartyLost(party));
}

void GangMoves::give_up_removed_nodes(JobId gang) {
  fail_those_without_record();
  std::vector<std::pair<MigrationId, Party>> lost;
  for (const auto& [id, state] : driver_.all()) {
    if (state.info.gang != gang || !gang::is_closed(state) || gang::is_settled(state)) continue;
    for (const Party& party : state.info.ranks())
      if (deps_.nodes.find(node_of(state.info, party)) == nullptr) lost.emplace_back(id, party);
  }
  for (const auto& [id, party] : lost) driver_.on_event(id, gang::PartyLost(party));
}

// ---- Progress in the table ----

void GangMoves::on_event_done(MigrationId id) {
  const gang::CoordinatorState* state = driver_.find(id);
  if (state == nullptr) return;
  show(*state);
  if (gang::is_closed(*state) && !std::exchange(shown_[id].is_decided, true)) decide(*state);
  measure_skew(id);
  if (!gang::is_settled(*state) || std::exchange(shown_[id].is_settled, true)) return;
  for (Migration* row : rows_of(state->info)) deps_.table.mark_settled(row->id);
  // Listeners that wait for the end of the move, such as a stop of all ranks, are notified.
  const auto gang = find_whole(deps_.jobs, state->info.gang);
  control::spawn(deps_.executor, "end of a move of ranks", erase_once_stored(id));
  if (gang)
    for (const Job* rank : gang->ranks) deps_.table.moved().notify(rank->id);
}

// Removes the record once the store is durable. Before that, a coordinator that lost its newest writes would
// find the move again.
control::Task<> GangMoves::erase_once_stored(MigrationId id) {
  deps_.table.store_settled();
  const auto stored = co_await durable(deps_.sync);
  if (!stored) co_return;
  shown_.erase(id);
  plans_.erase(id);
  driver_.forget(id);
}

void GangMoves::show(const gang::CoordinatorState& state) {
  using migration::Report;
  using migration::ReportKind;
  const bool is_started = all_of(state, Role::kSource, [](const gang::Facts& f) { return f.started; });
  const bool is_granted = std::holds_alternative<gang::coordinator::Granted>(state.phase);
  const bool is_committed =
      std::any_of(state.facts.begin(), state.facts.end(), [](const auto& at) { return at.second.committed; });
  const gang::GangPlan* plan = plan_of(state.info);
  if (plan == nullptr) return;
  Shown& shown = shown_[state.info.migration];
  for (const gang::MovedRank& moved : plan->moved) {
    Migration* row = deps_.table.find(moved.migration);
    if (row == nullptr || row->phase >= MigrationPhase::kClosing) continue;
    if (is_started) deps_.outcomes.on_report(*row, Report(ReportKind::kPrepared), 0);
    if (is_granted) deps_.outcomes.on_report(*row, Report(ReportKind::kGranted), 0);
    if (is_committed) deps_.outcomes.on_report(*row, Report(ReportKind::kCommitted), 0);
    const auto facts = state.facts.find(Party(Role::kTarget, moved.rank));
    if (facts != state.facts.end() && facts->second.ran && shown.ran.insert(moved.rank).second)
      deps_.outcomes.on_report(*row, Report(ReportKind::kRunsAtTarget, row->base + 1), 0);
  }
}

void GangMoves::decide(const gang::CoordinatorState& state) {
  using migration::Report;
  using migration::ReportKind;
  const auto* closed = std::get_if<gang::coordinator::Closed>(&state.phase);
  const wire::Reason reason =
      state.abort.value_or(wire::Reason(ErrorCode::kAborted, "The ranks stayed where they were"));
  for (Migration* row : rows_of(state.info)) {
    if (closed != nullptr && closed->side == Side::kTarget) {
      deps_.outcomes.on_report(*row, Report(ReportKind::kClosedTarget), row->base + 1);
    } else if (closed != nullptr) {
      const Incarnation owner = row->base + (closed->k - state.info.base);
      // The row receives the current incarnation first, because later orders name the rank by it.
      if (owner != row->incarnation)
        deps_.outcomes.on_report(*row, Report(ReportKind::kRunsAtSource, owner), owner);
      deps_.outcomes.on_report(*row, Report(ReportKind::kClosedSource, owner, reason), owner);
    } else if (std::holds_alternative<gang::coordinator::Aborted>(state.phase)) {
      deps_.outcomes.on_report(*row, Report(ReportKind::kAborted, row->base, reason), row->base);
    } else {
      deps_.outcomes.decide(
          *row, MigrationResult::kLost,
          "Neither the ranks nor their targets can continue: `restore` continues the job from its images",
          row->runs_at == Side::kTarget ? 0 : row->base);
    }
  }
}

}  // namespace ckpt::coordinator
