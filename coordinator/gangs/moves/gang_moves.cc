// SPDX-License-Identifier: Apache-2.0
// The part of GangMoves that handles requests for moves. It determines which ranks move, to which places, and
// what they need. The exchange with the state machines is in gang_move_commit.cc.
#include "coordinator/gangs/moves/gang_moves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/migration/migration_rows.h"
#include "coordinator/migration/network_check.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/at_once.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kGroupsAnswer{40};
constexpr std::int64_t kGroupsAnswerMs = 30'000;  // the limit in milliseconds for a program's answer about
                                                  // its groups
constexpr std::int64_t kGroupsTimeoutMs = 120'000;
constexpr std::int64_t kAdmissionWaitMs = 10'000;
constexpr std::chrono::milliseconds kPollInterval{200};

bool moves(const std::vector<std::uint32_t>& moved, const Job& rank) {
  return std::find(moved.begin(), moved.end(), rank.rank_number()) != moved.end();
}

// Returns the places in `to`, a comma-separated list. Returns an empty list for "auto".
std::vector<std::string> places_in(const std::string& to) {
  std::vector<std::string> places;
  if (to.empty() || to == "auto") return places;
  for (std::size_t from = 0; from <= to.size();) {
    const std::size_t comma = std::min(to.find(',', from), to.size());
    places.push_back(to.substr(from, comma - from));
    from = comma + 1;
  }
  return places;
}

// Returns the limit for making communicators. It is shorter than the move's own limit, so that the reason for
// a failure is known.
std::uint32_t communicators_limit_ms(const MigrateRequest& request) {
  const bool in_pause = request.options.communicators == wire::Communicators::kInPause;
  std::int64_t limit = in_pause ? request.timeout_ms / 2 : request.timeout_ms * 3 / 4;
  if (in_pause && request.options.if_not_converged == wire::NotConverged::kAbort)
    limit = std::min(limit, request.options.max_downtime_ns / kNanosPerMs);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(limit, 1, kGroupsTimeoutMs));
}

// Returns the ranks to move. Without explicit numbers all ranks move, except those that are already on a
// named node.
Result<std::vector<std::uint32_t>> chosen_ranks(const WholeJob& gang, const MigrateRequest& request) {
  std::vector<std::uint32_t> moved = request.ranks;
  const std::vector<std::string> named = places_in(request.to);
  if (moved.empty()) {
    for (const Job* rank : gang.ranks)
      if (std::find(named.begin(), named.end(), rank->node()) == named.end())
        moved.push_back(rank->rank_number());
    if (moved.empty())
      return Error(ErrorCode::kRefused,
                   fmt::format("All ranks of {} are on {} already", gang.name, request.to));
  }
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  for (const std::uint32_t number : moved) {
    CKPT_TRYV(find_rank(gang, number));
  }
  return moved;
}

}  // namespace

std::string GangMoves::why_not_movable(const WholeJob& gang) const {
  if (gang.ranks.size() != gang.size)
    return fmt::format("only {} of its {} ranks are known", gang.ranks.size(), gang.size);
  for (const Job* rank : gang.ranks) {
    const std::uint32_t number = rank->rank_number();
    if (rank->spec.mode != MigrationMode::kCooperative)
      return fmt::format("rank {} is {}: ranks that do not call ckpt_barrier cannot stop at a common step",
                         number, to_string(rank->spec.mode));
    if (const Migration* open = deps_.table.open_of(rank->id))
      return fmt::format("migration {} of rank {} is open", migration_text(open->id), number);
    if (rank->operation) return fmt::format("rank {} is being suspended or restored", number);
    if (const std::string state = deps_.states.of(*rank); state != "running")
      return fmt::format("rank {} is {}", number, state);
    if (!rank->movable)
      return fmt::format("rank {}: {}", number,
                         rank->reason.empty() ? "it has not reported that it can be moved" : rank->reason);
  }
  return is_unsettled(gang.id) ? "not all nodes know yet how its last move ended" : "";
}

const Migration* GangMoves::open_of(const WholeJob& gang) const {
  for (const Job* rank : gang.ranks) {
    const Migration* open = deps_.table.open_of(rank->id);
    const Migration* lead = open == nullptr ? nullptr : deps_.table.find(open->gang_move);
    if (open != nullptr) return lead != nullptr && lead->open() ? lead : open;
  }
  return nullptr;
}

bool GangMoves::is_unsettled(JobId id) const {
  return std::any_of(driver_.all().begin(), driver_.all().end(), [id](const auto& at) {
    return at.second.info.gang == id && !gang::is_settled(at.second);
  });
}

control::Task<Result<WholeJob>> GangMoves::wait_until_movable(JobId id, MigrateRequest request) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(std::min(request.timeout_ms, kAdmissionWaitMs));
  give_up_removed_nodes(id);
  while (true) {
    auto gang = find_movable(id, request);
    if (gang || gang.error().code() != ErrorCode::kRefused) co_return gang;
    const auto known = find_whole(deps_.jobs, id);
    const bool passes =
        known &&
        (is_unsettled(id) || std::any_of(known->ranks.begin(), known->ranks.end(), [this](const Job* rank) {
           const std::string state = deps_.states.of(*rank);
           const bool not_described_yet = state == "running" && !rank->movable && rank->reason.empty();
           return state == "starting" || state == "paused" || not_described_yet;
         }));
    if (!passes || std::chrono::steady_clock::now() >= deadline) co_return gang;
    co_await deps_.jobs.changed().wait_until(
        std::min(deadline, std::chrono::steady_clock::now() + kPollInterval));
  }
}

Result<WholeJob> GangMoves::find_movable(JobId id, const MigrateRequest& request) const {
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) return job_was_removed(id);
  if (!request.options.new_argv.empty())
    return Error(ErrorCode::kNotSupported,
                 "The ranks of a job must continue as the same program: --exec is only for jobs of one rank");
  if (const std::string reason = why_not_movable(*gang); !reason.empty())
    return Error(ErrorCode::kRefused, "Job " + gang->name + " cannot be moved: " + reason);
  return *gang;
}

Result<JobMovePlan> GangMoves::plan(JobId id, const MigrateRequest& request, const PlanHints& hints) const {
  CKPT_TRY(gang, find_movable(id, request));
  return plan_for(gang, request, hints);
}

control::Task<Result<JobMovePlan>> GangMoves::dry_run(JobId id, MigrateRequest request) {
  CKPT_CO_TRY(gang, find_movable(id, request));
  CKPT_CO_TRY(plan, plan_for(gang, request, PlanHints()));
  if (plan.places.empty()) co_return plan;
  Result<void> takes = check_communicators(gang, plan, request);
  if (takes) takes = co_await check_networks(gang, plan, request);
  if (takes) co_return plan;
  plan.places.clear();
  plan.reason = takes.error().to_string();
  co_return plan;
}

void GangMoves::begin_soon(JobId gang, MigrateRequest request, Closed closed, const JobMovePlan& plan,
                           std::function<void(const Error&)> failed) {
  if (!is_beginning(gang)) claim(gang, plan);
  control::spawn(deps_.executor, "a move of ranks",
                 begin_and_notify(gang, std::move(request), std::move(closed), std::move(failed)));
}

control::Task<> GangMoves::begin_and_notify(JobId gang, MigrateRequest request, Closed closed,
                                            std::function<void(const Error&)> failed) {
  const auto begun = co_await begin(gang, std::move(request), std::move(closed));
  if (!begun) failed(begun.error());
}

void GangMoves::claim(JobId id, const JobMovePlan& plan) {
  std::vector<MoveClaim> claims;
  for (const Job* rank : deps_.jobs.ranks_of(id)) {
    const auto at = std::find(plan.moved.begin(), plan.moved.end(), rank->rank_number());
    if (at == plan.moved.end() || !plan.is_possible()) continue;
    MoveClaim& claim = claims.emplace_back();
    claim.from = rank->place();
    claim.to = plan.places[static_cast<std::size_t>(at - plan.moved.begin())];
    claim.bytes = rank->expected_bytes();
  }
  deps_.table.claim(id, std::move(claims));
}

// Plans the move. GPUs that the gang's ranks use now are not available, whether these ranks move or not. Both
// instances of a rank exist until the handover.
Result<JobMovePlan> GangMoves::plan_for(const WholeJob& gang, const MigrateRequest& request,
                                        PlanHints hints) const {
  JobMovePlan plan;
  CKPT_TRY(moved, chosen_ranks(gang, request));
  plan.moved = std::move(moved);
  // If all ranks move, no rank computes with the standbys' communicators. So the standbys make communicators
  // ahead of the pause.
  plan.communicators = plan.moved.size() == gang.size
                           ? wire::Communicators::kOverlap
                           : request.communicators.value_or(gang.ranks.front()->spec.gang.communicators);
  plan.connections = Moves::connections_in(*gang.ranks.front(), request);
  const std::vector<std::string> wanted_places = places_in(request.to);
  GangShape shape;
  shape.ranks = plan.moved.size();
  shape.one_node = wanted_places.size() == 1 || gang.ranks.front()->spec.gang.one_node;
  hints.network = request.network;
  const Job* first = nullptr;
  for (const Job* rank : gang.ranks) {
    const Place at = rank->place();
    hints.closed.emplace_back(Scope(at.node, at.gpu),
                              fmt::format("rank {} of the job already runs there", rank->rank_number()));
    if (!moves(plan.moved, *rank)) shape.beside.push_back(at);
    if (first == nullptr && moves(plan.moved, *rank)) first = rank;
  }
  PlacementRequest wanted = deps_.planner.request_for(*first, deps_.planner.gpu_views(hints));
  wanted.network = request.network;
  std::vector<std::string> nodes;
  for (const std::string& text : wanted_places) {
    CKPT_TRY(place, parse_place(text));
    if (place.second && plan.moved.size() != 1)
      return Error(ErrorCode::kInvalidArgument,
                   "Several ranks can only be moved to nodes: use --to NODE,NODE without GPUs");
    nodes.push_back(place.first);
    wanted.gpu = place.second;
  }
  if (nodes.size() == 1) wanted.node = nodes.front();
  const bool stays_on_node = gang.ranks.front()->spec.gang.one_node && plan.moved.size() != gang.size;
  if (stays_on_node && wanted.node.value_or(first->node()) != first->node()) {
    plan.reason =
        "its ranks were started for one node (--gpus): move all of them, or move some within the node";
    return plan;
  }
  if (stays_on_node) wanted.node = first->node();
  if (nodes.size() > 1) shape.nodes = nodes;
  CKPT_TRY(found, deps_.planner.plan_gang(wanted, nodes, shape, hints));
  plan.places = std::move(found.places);
  plan.reason = std::move(found.reason);
  plan.candidates = std::move(found.candidates);
  return plan;
}

control::Task<> GangMoves::ask_rank(std::shared_ptr<std::vector<AskedRank>> ranks, std::size_t at) {
  AskedRank& rank = (*ranks)[at];
  rank.answer = co_await deps_.calls.ask_groups(rank.node, rank.request, kGroupsAnswer);
}

// Queries the ranks for the groups that get other communicators, and for the tickets with which ranks find
// each other.
control::Task<Result<GangMoves::Groups>> GangMoves::ask_groups(WholeJob gang,
                                                               std::vector<std::uint32_t> moved,
                                                               std::int64_t timeout_ms) {
  Groups groups;
  CKPT_CO_TRY(epoch, deps_.numbers.next());
  groups.epoch = epoch;
  // The data is copied because a job may be removed during the queries.
  const auto ranks = std::make_shared<std::vector<AskedRank>>();
  std::vector<control::Task<>> asked;
  for (const Job* rank : gang.ranks) {
    AskedRank& one = ranks->emplace_back();
    one.rank = rank->rank_number();
    one.node = rank->node();
    one.request.job = rank->id;
    one.request.incarnation = rank->incarnation;
    one.request.epoch = groups.epoch;
    one.request.moved = moved;
    one.request.timeout_ms =
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(timeout_ms / 2, 1, kGroupsAnswerMs));
    asked.push_back(ask_rank(ranks, ranks->size() - 1));
  }
  co_await control::at_once(deps_.executor, "the groups of a rank", std::move(asked));
  std::set<std::string> touched;
  std::set<std::string> made;
  for (AskedRank& rank : *ranks) {
    Result<gang::RankGroups>& answer = rank.answer;
    if (!answer)
      co_return Error(answer.error().code(),
                      fmt::format("Rank {} on {}: {}", rank.rank, rank.node, answer.error().message()));
    if (!answer->knows_gang)
      co_return Error(ErrorCode::kRefused,
                      fmt::format("Rank {} does not call ckpt_gang, so its program cannot reconnect to ranks "
                                  "that have moved. Use `suspend {}`, then `resume --to`",
                                  rank.rank, gang.name));
    for (gang::GroupTicket& ticket : answer->groups) {
      touched.insert(ticket.group);
      if (ticket.ticket.empty() || !made.insert(ticket.group).second) continue;
      groups.tickets.push_back(std::move(ticket));
    }
  }
  if (groups.tickets.size() > gang::kMaxGroups || touched.size() != made.size())
    co_return Error(ErrorCode::kRefused,
                    fmt::format("Not every group of {} has a member that creates its ticket (NCCL unique id)",
                                gang.name));
  co_return std::move(groups);
}

std::optional<double> GangMoves::last_communicators_ms(const WholeJob& gang) const {
  const auto is_of_it = [&gang](const Migration& m) {
    return std::any_of(gang.ranks.begin(), gang.ranks.end(),
                       [&m](const Job* rank) { return rank->id == m.job; });
  };
  MigrationId last = 0;
  double longest = 0;
  const auto& all = deps_.table.all();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    const Migration& m = at->second;
    if (m.gang_move == 0 || m.result != MigrationResult::kDone || !is_of_it(m)) continue;
    if (last != 0 && m.gang_move != last) break;
    last = m.gang_move;
    if (m.target_report)
      longest = std::max(longest, static_cast<double>(m.target_report->groups_ns) / kNanosPerMs);
    for (const StayingRankTimes& times : m.staying) longest = std::max(longest, times.groups_ms);
  }
  return longest > 0 ? std::optional(longest) : std::nullopt;
}

// Checks that communicators made in the pause fit into the downtime limit. The limit is binding only if the
// user prefers an abort over a longer pause.
Result<void> GangMoves::check_communicators(const WholeJob& gang, const JobMovePlan& plan,
                                            const MigrateRequest& request) const {
  const auto& options = request.options;
  if (plan.communicators == wire::Communicators::kOverlap) return ok();
  const double limit = static_cast<double>(options.max_downtime_ns) / kNanosPerMs;
  const double last = last_communicators_ms(gang).value_or(0);
  if (options.if_not_converged != wire::NotConverged::kAbort || last <= limit) return ok();
  return Error(
      ErrorCode::kRefused,
      fmt::format("In the last move of {}, creating communicators took {:.0f} ms, which exceeds the limit of "
                  "the pause ({:.0f} ms). Use a longer --max-downtime, or --communicators overlap",
                  gang.name, last, limit));
}

control::Task<Result<void>> GangMoves::check_networks(WholeJob gang, JobMovePlan plan,
                                                      MigrateRequest request) {
  const auto checks = std::make_shared<std::vector<NetworkCheck>>();
  std::size_t next = 0;
  for (const Job* rank : gang.ranks) {
    if (!moves(plan.moved, *rank)) continue;
    NetworkCheck& check = checks->emplace_back();
    check.from = rank->place();
    check.to = plan.places[next++];
    CKPT_CO_TRY(planned, deps_.moves.plan_of_rank(*rank, check.to, request));
    check.network = std::move(planned.second);
  }
  std::vector<control::Task<>> asked;
  for (std::size_t at = 0; at < checks->size(); ++at) asked.push_back(check_one(checks, at));
  co_await control::at_once(deps_.executor, "the network of a rank", std::move(asked));
  for (const NetworkCheck& check : *checks)
    if (!check.answer) co_return check.answer;
  co_return ok();
}

control::Task<> GangMoves::check_one(std::shared_ptr<std::vector<NetworkCheck>> checks, std::size_t at) {
  NetworkCheck& check = (*checks)[at];
  check.answer = co_await check_network(deps_.calls, check.from, check.to, check.network);
}

control::Task<Result<Migration*>> GangMoves::begin(JobId id, MigrateRequest request, Closed closed) {
  if (!beginning_.insert(id).second)
    co_return Error(ErrorCode::kRefused, "A move of these ranks is already being prepared");
  // The frame of this function may outlive this object when the coordinator exits.
  struct Leaving {
    std::weak_ptr<const bool> is_alive;
    GangMoves& moves;
    JobId id;
    ~Leaving() {
      if (is_alive.expired()) return;
      moves.deps_.table.claim(id, {});
      moves.beginning_.erase(id);
    }
  } leaving{alive_, *this, id};
  CKPT_CO_TRY(gang, co_await wait_until_movable(id, request));
  deps_.table.claim(id, {});  // the claims of this move do not count in its own plan
  PlanHints hints;
  hints.closed = std::move(closed);
  CKPT_CO_TRY(plan, plan_for(gang, request, std::move(hints)));
  if (plan.places.empty())
    co_return Error(ErrorCode::kRefused, "No GPUs can hold the ranks of " + gang.name + ": " + plan.reason);
  claim(id, plan);
  CKPT_CO_TRYV(check_communicators(gang, plan, request));
  request.options.communicators = plan.communicators;
  CKPT_CO_TRY(groups, co_await ask_groups(gang, plan.moved, request.timeout_ms));
  CKPT_CO_TRYV(co_await check_networks(gang, plan, request));
  // The job is checked again, because the tables may have changed during the queries.
  CKPT_CO_TRY(now, find_movable(id, request));
  deps_.table.claim(id, {});  // from here on the migrations' rows hold the places
  CKPT_CO_TRY(begun, record(now, plan, request, std::move(groups)));
  const MigrationId lead = begun->id;
  co_await driver_.caught_up(lead);
  Migration* row = deps_.table.find(lead);
  if (row == nullptr)
    co_return Error(ErrorCode::kInternal, "The migration is missing in the coordinator's table");
  if (driver_.find(lead) == nullptr) co_return Error(ErrorCode::kRefused, row->error);
  co_return row;
}

Result<Migration*> GangMoves::create_row(const Job& rank, const Place& to, const MigrateRequest& request,
                                         wire::MigrationPlan plan, MigrationId move) {
  Migration row = row_of_move(rank, to, plan);
  row.gang_move = move;
  row.timeout_ms = request.timeout_ms;
  row.reason = request.reason;
  CKPT_TRY(created, begin_row(deps_.table, deps_.events, std::move(row), std::move(plan)));
  if (created->gang_move == 0) {
    created->gang_move = created->id;
    deps_.table.save(*created);
  }
  return created;
}

// Records the move. On an error nothing has begun. Rows that were created then have no state machine and are
// refused here. Otherwise they would stay open forever.
Result<Migration*> GangMoves::record(const WholeJob& gang, const JobMovePlan& plan,
                                     const MigrateRequest& request, Groups groups) {
  std::vector<MigrationId> made;
  auto recorded = record_rows(gang, plan, request, std::move(groups), made);
  if (recorded) return recorded;
  for (const MigrationId id : made) {
    Migration* row = deps_.table.find(id);
    if (row == nullptr || row->phase >= MigrationPhase::kClosing) continue;
    deps_.outcomes.decide(*row, MigrationResult::kRefused, recorded.error().to_string(), 0);
    deps_.table.mark_settled(id);
  }
  return recorded;
}

Result<Migration*> GangMoves::record_rows(const WholeJob& gang, const JobMovePlan& plan,
                                          const MigrateRequest& request, Groups groups,
                                          std::vector<MigrationId>& made) {
  gang::GangInfo info;
  info.gang = gang.id;
  gang::GangPlan full;
  full.tickets = std::move(groups.tickets);
  full.epoch = groups.epoch;
  info.overlaps = request.options.communicators == wire::Communicators::kOverlap;
  full.groups_timeout_ms = communicators_limit_ms(request);
  info.communicators_ms = full.groups_timeout_ms;
  const double expected_ms = info.overlaps ? 0 : last_communicators_ms(gang).value_or(0);
  Migration* lead = nullptr;
  std::size_t next = 0;
  for (const Job* rank : gang.ranks) {
    const std::uint32_t number = rank->rank_number();
    if (!moves(plan.moved, *rank)) {
      info.staying.push_back(number);
      gang::StayingRank& staying = full.staying.emplace_back();
      staying.rank = number;
      staying.job = rank->id;
      staying.incarnation = rank->incarnation;
      staying.node = rank->node();
      continue;
    }
    const Place to = plan.places[next++];
    CKPT_TRY(planned, deps_.moves.plan_of_rank(*rank, to, request));
    planned.first.communicators_ns = static_cast<std::int64_t>(expected_ms * kNanosPerMs);
    gang::MovedRank& moved = full.moved.emplace_back();
    moved.rank = number;
    moved.base = rank->incarnation;
    moved.plan = wire::encode(planned.first);
    CKPT_TRY(row,
             create_row(*rank, to, request, std::move(planned.first), lead == nullptr ? 0 : lead->gang_move));
    made.push_back(row->id);
    moved.migration = row->id;
    if (lead == nullptr) {
      lead = row;
      info.migration = row->id;
      info.base = rank->incarnation;
    }
    info.moved.push_back(number);
  }
  info.plan = wire::encode(full);
  plans_.insert_or_assign(info.migration, std::move(full));
  driver_.begin(std::move(info));
  return lead;
}

}  // namespace ckpt::coordinator
