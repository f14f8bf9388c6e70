// SPDX-License-Identifier: Apache-2.0
// The part of GangMoves for a coordinator that starts. It gathers what the journal, the store and the nodes
// know of unfinished moves (docs/protocol.md, "A coordinator that has lost its store").
#include <algorithm>

#include "coordinator/gangs/moves/gang_moves.h"
#include "coordinator/migration/migration_rows.h"

namespace ckpt::coordinator {
namespace {

// Checks that the node describes a move in which the node takes part, and whose plan has the same ranks.
Result<void> check_described(const std::string& node, const gang::GangInfo& info,
                             const gang::GangPlan& plan) {
  const Error wrong(ErrorCode::kInvalidArgument,
                    "Node " + node + " did not describe a move of ranks in which it takes part");
  bool takes_part = false;
  std::vector<std::uint32_t> moved;
  std::vector<std::uint32_t> staying;
  for (const gang::MovedRank& rank : plan.moved) {
    CKPT_TRY(own, wire::decode_plan(rank.plan));
    const bool is_whole = rank.migration >= info.migration && rank.base != 0 && own.spec.job != 0 &&
                          own.spec.gang.id == info.gang && !own.spec.ranks.empty() &&
                          !own.target_ranks.empty();
    if (!is_whole) return wrong;
    takes_part = takes_part || own.source_node == node || own.target_node == node;
    moved.push_back(rank.rank);
  }
  for (const gang::StayingRank& rank : plan.staying) {
    takes_part = takes_part || rank.node == node;
    staying.push_back(rank.rank);
  }
  if (!takes_part || moved != info.moved || staying != info.staying ||
      plan.moved.front().migration != info.migration)
    return wrong;
  return ok();
}

}  // namespace

Result<void> GangMoves::restore() {
  CKPT_TRYV(driver_.restore());
  for (const auto& [id, state] : driver_.all()) {
    CKPT_TRYV(adopt_rows(state.info));
    for (Migration* row : rows_of(state.info)) deps_.table.mark_unsettled(row->id);
    abort_again(state);
  }
  find_rows_without_record();
  return ok();
}

// Repeats an abort request that was made before the restart. The move then ends as it would after a new
// request.
void GangMoves::abort_again(const gang::CoordinatorState& state) {
  if (gang::is_closed(state)) return;
  const std::vector<Migration*> rows = rows_of(state.info);
  const auto is_aborted = [](const Migration* row) { return row->abort_cause != AbortCause::kNone; };
  if (std::none_of(rows.begin(), rows.end(), is_aborted)) return;
  // The abort is posted, so that the machine receives it after Restarted. The driver has already posted that
  // first event of a restored move.
  control::asio::post(deps_.executor, [this, id = state.info.migration] {
    driver_.on_event(id, gang::AbortRequested(wire::Reason(
                             ErrorCode::kAborted, "The move was aborted before the coordinator restarted")));
  });
}

Result<void> GangMoves::adopt_rows(const gang::GangInfo& info) {
  const gang::GangPlan* plan = plan_of(info);
  if (plan == nullptr)
    return Error(ErrorCode::kCorrupt,
                 "The plan of move of ranks " + migration_text(info.migration) + " is damaged");
  for (const gang::MovedRank& moved : plan->moved) {
    CKPT_TRYV(deps_.table.skip_ids_to(moved.migration));
    CKPT_TRY(own, wire::decode_plan(moved.plan));
    Migration* row = deps_.table.find(moved.migration);
    if (row == nullptr && !deps_.table.was_removed(moved.migration)) {
      Migration lost = row_of_record(moved.migration, own.spec.job, moved.base, &own);
      lost.gang_move = info.migration;
      row = &deps_.table.insert(std::move(lost));
    }
    if (row != nullptr && row->open()) deps_.table.store_plan(row->id, std::move(own));
  }
  return ok();
}

// Finds rows of moves without a record. The coordinator exited before it recorded BEGUN, or its journal was
// lost, or the store is an older copy.
void GangMoves::find_rows_without_record() {
  const std::set<MigrationId> open = deps_.table.open_ids();
  for (const MigrationId id : open) {
    Migration& m = *deps_.table.find(id);
    if (m.gang_move == 0 || driver_.find(m.gang_move) != nullptr) continue;
    if (m.phase == MigrationPhase::kClosing) {
      deps_.outcomes.close_when_measured(m);
      continue;
    }
    std::set<std::string>& away = without_record_[m.gang_move];
    away.insert({m.from.node, m.to.node});
    const Job* job = deps_.jobs.find(m.job);
    if (job == nullptr) continue;
    for (const Job* rank : deps_.jobs.ranks_of(job->whole())) away.insert(rank->node());
  }
}

void GangMoves::on_ready(const Node& node) {
  for (auto& [move, away] : without_record_) {
    const bool is_open_there = std::any_of(
        node.handovers.begin(), node.handovers.end(),
        [id = move](const wire::OpenHandover& open) { return open.of_ranks && open.migration == id; });
    if (!is_open_there) away.erase(node.row.name);
  }
  fail_those_without_record();
}

// Fails the moves that no node knows, once all their nodes have connected or were removed.
void GangMoves::fail_those_without_record() {
  std::vector<MigrationId> unknown_to_all;
  for (auto& [move, away] : without_record_) {
    std::erase_if(away, [this](const std::string& name) { return deps_.nodes.find(name) == nullptr; });
    if (away.empty()) unknown_to_all.push_back(move);
  }
  for (const MigrationId move : unknown_to_all) fail_without_record(move);
}

void GangMoves::fail_without_record(MigrationId move) {
  if (without_record_.erase(move) == 0) return;
  const std::set<MigrationId> open = deps_.table.open_ids();
  for (const MigrationId id : open) {
    Migration& m = *deps_.table.find(id);
    if (m.gang_move == move)
      deps_.outcomes.decide(m, MigrationResult::kFailed,
                            "The coordinator was restarted before the migration began", 0);
  }
}

// Recovers a move from a node's description. Parties that do not know the move leave it.
Result<void> GangMoves::recover(const std::string& node, gang::GangInfo info) {
  const MigrationId move = info.migration;
  if (driver_.find(move) != nullptr || (deps_.table.knows(move) && !lacks_record(move))) return ok();
  CKPT_TRYV(gang::check(info));
  CKPT_TRY(plan, gang::decode_gang_plan(info.plan));
  CKPT_TRYV(check_described(node, info, plan));
  CKPT_TRYV(adopt_rows(info));
  for (Migration* row : rows_of(info)) {
    deps_.outcomes.on_report(*row, migration::Report(migration::ReportKind::kForgotten), 0);
    deps_.table.mark_unsettled(row->id);
  }
  without_record_.erase(move);
  driver_.recover(std::move(info));
  return ok();
}

}  // namespace ckpt::coordinator
