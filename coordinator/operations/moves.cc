// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/moves.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/state/usual_pause.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/random.h"

namespace ckpt::coordinator {
namespace {

// The age at which a node's last inventory counts as old. Nodes send an inventory every five seconds, and at
// changes.
constexpr std::int64_t kInventoryMs = 7'000;
constexpr std::int64_t kAdmissionWaitMs = 10'000;
constexpr std::chrono::seconds kPlanAgain{1};  // the interval at which plans are computed again, because the
                                               // effect of waiting changes over time

// Checks whether a node of the request may soon become usable. Its state may be slightly outdated: a
// disconnected node may be connecting, and a driver that did not answer may answer the next query.
bool may_answer_soon(const std::vector<GpuView>& views, const std::string& to) {
  const auto asked = parse_place(to);
  return std::any_of(views.begin(), views.end(), [&](const GpuView& view) {
    if (to != "auto" && asked) {
      const auto& [node, gpu] = *asked;
      if (view.place.node != node || (gpu && view.place.gpu != *gpu)) return false;
    }
    return !view.connected || (!view.healthy && !view.health_reason.empty());
  });
}

Result<wire::Bytes> random_bytes(std::size_t count) {
  wire::Bytes bytes(count);
  CKPT_TRYV(fill_random(bytes));
  return bytes;
}

PlanHints hints_of(const MigrateRequest& request) {
  PlanHints hints;
  hints.network = request.network;
  return hints;
}

// Returns why a node refuses, or an empty string if it accepts. Returns an error if the node gave no such
// answer.
Result<std::string> reason_of(const Result<void>& answer) {
  if (answer) return std::string();
  const Error& error = answer.error();
  if (error.code() != ErrorCode::kRefused && error.code() != ErrorCode::kNotSupported) return error;
  return error.to_string();
}

Result<void> check_program(const Job& job, const wire::MigrateOptions& options) {
  if (options.new_argv.empty() || job.spec.mode == MigrationMode::kCooperative) return ok();
  return Error(ErrorCode::kRefused, "Job " + job.spec.name + " is " + std::string(to_string(job.spec.mode)) +
                                        ": only a cooperative job can continue as a different program");
}

}  // namespace

Result<wire::MigrationPlan> Moves::make_plan(const Job& job, const Place& to,
                                             const wire::MigrateOptions& options) const {
  const Node* source = deps_.nodes.find(job.node());
  const Node* target = deps_.nodes.find(to.node);
  if (source == nullptr || target == nullptr)
    return Error(ErrorCode::kInternal, "A node of the plan is missing in the coordinator's table");
  wire::MigrationPlan plan;
  plan.spec = job.spec;
  plan.spec.incarnation = job.segments.back().incarnation;
  for (std::size_t i = 0; i < plan.spec.ranks.size(); ++i) {
    plan.spec.ranks[i].gpu_index = job.ranks[i].place.gpu;
    wire::RankSpec& rank = plan.target_ranks.emplace_back();
    rank.rank = plan.spec.ranks[i].rank;
    rank.gpu_index = to.gpu;
  }
  plan.source_node = source->row.name;
  plan.target_node = target->row.name;
  plan.source_peer_address = source->row.peer_address;
  plan.target_peer_address = target->row.peer_address;
  plan.peer_token = deps_.peer_token;
  CKPT_TRY(key, random_bytes(wire::kFingerprintKeyBytes));
  CKPT_TRY(session, random_bytes(wire::kSessionTokenBytes));
  plan.fingerprint_key = std::move(key);
  plan.session_token = std::move(session);
  plan.lease_term_ns = deps_.config.lease_term_ms * kNanosPerMs;
  plan.handover_timeout_ns = deps_.config.handover_timeout_ms * kNanosPerMs;
  plan.options = options;
  plan.last_pause = usual_pause(job.pauses);
  return plan;
}

Result<SharedNetwork> Moves::network_to(const Job& job, const std::string& to,
                                        const std::string& asked) const {
  const Node* source = deps_.nodes.find(job.node());
  const Node* target = deps_.nodes.find(to);
  if (source == nullptr || target == nullptr)
    return Error(ErrorCode::kInternal, "A node of the move is missing in the coordinator's table");
  return shared_network(source->networks, target->networks, asked);
}

Result<std::pair<wire::MigrationPlan, SharedNetwork>> Moves::plan_of_rank(
    const Job& job, const Place& to, const MigrateRequest& request) const {
  CKPT_TRY(network, network_to(job, to.node, request.network));
  CKPT_TRY(full, make_plan(job, to, request.options));
  full.options.connections = connections_in(job, request);
  full.network = network.name;
  // Lanes within a node read payloads from shared memory, so more addresses would not help.
  if (to.node != job.node())
    full.paths = static_cast<std::uint32_t>(std::max<std::size_t>(1, network.paths.size()));
  return std::pair(std::move(full), std::move(network));
}

wire::Connections Moves::connections_in(const Job& job, const MigrateRequest& request) {
  return request.connections.value_or(job.spec.connections);
}

Result<Migration*> Moves::begin(const Job& job, const MigrateRequest& request, const MigratePlan& plan) {
  if (!plan.to) return Error(ErrorCode::kRefused, plan.reason);
  CKPT_TRY(planned, plan_of_rank(job, *plan.to, request));
  auto& [full, network] = planned;
  MigrationRunner::Request begun;
  begun.to = *plan.to;
  begun.timeout_ms = request.timeout_ms;
  if (const auto pause = expected_pause(job, deps_.nodes, plan.to->node == job.node()))
    begun.expected_pause_ms = pause->ms;
  begun.reason = request.reason;
  begun.network = std::move(network);
  return deps_.migration_runner.begin(job, begun, std::move(full));
}

bool Moves::give_up_parking(const Job& job, const MigratePlan& plan, const std::string& reason) {
  const bool has_place = !plan.candidates.empty() && plan.candidates.front().suitable;
  return has_place && give_up_parking(job, reason);
}

bool Moves::give_up_parking(const Job& job, const std::string& reason) {
  return job.operation && deps_.image_work.give_up_parking(job.id, reason);
}

bool Moves::may_be_possible_soon(const Job& job) const {
  const std::string state = deps_.states.of(job);
  // The operation that has paused the job will let it continue.
  if (state == "paused") return true;
  if (job.operation && !job.operation->cancelled.empty() && !job.operation->stops) return true;
  const bool not_described_yet = state == "running" && !job.movable && job.reason.empty();
  if (state == "starting") return !deps_.states.lacks_context(job);
  if (not_described_yet) return true;
  if (!deps_.states.why_not_movable(job).empty()) return false;
  // The move may become possible with the next inventory: a job that ended, or was moved, frees its memory
  // shortly afterwards.
  const std::int64_t since = wall_clock_ms() - kInventoryMs;
  return deps_.jobs.newest_end_ms() > since || deps_.migrations.newest_end_ms() > since;
}

// Returns a warning if the expected pause exceeds the limit. The move's own estimate decides, because it
// includes the target's rates and how much the job writes.
std::string Moves::limit_warning(const Job& job, const Place& to, const wire::MigrateOptions& options) const {
  const auto pause = expected_pause(job, deps_.nodes, to.node == job.node());
  const double limit_ms = static_cast<double>(options.max_downtime_ns) / static_cast<double>(kNanosPerMs);
  if (options.if_not_converged != wire::NotConverged::kAbort || !pause || pause->ms <= limit_ms) return {};
  return fmt::format(
      "a pause of about {:.0f} ms is expected, but the limit is {:.0f} ms; the move is refused unless the "
      "estimate at its start is shorter",
      pause->ms, limit_ms);
}

control::Task<Result<MigratePlan>> Moves::dry_run(JobId id, MigrateRequest request) {
  const Job* job = deps_.jobs.find(id);
  CKPT_CO_TRYV(check_program(*job, request.options));
  CKPT_CO_TRY(plan, deps_.planner.plan(*job, request.to, hints_of(request)));
  if (const std::string warning = deps_.states.warning_of(*job); !warning.empty())
    plan.warnings.push_back(warning);
  if (!plan.to) co_return plan;
  if (const std::string warning = limit_warning(*job, *plan.to, request.options); !warning.empty())
    plan.warnings.push_back(warning);
  const std::string name = job->spec.name;
  std::vector<Place> targets(1, *plan.to);
  const wire::Connections connections = connections_in(*job, request);
  CKPT_CO_TRY(answers, co_await ask(id, std::move(targets), request.network, connections));
  const TargetAnswer& answer = answers.front();
  if (answer.acceptance) {
    if (answer.ended_connections > 0)
      plan.warnings.push_back(
          fmt::format("{} TCP connection{} to other programs would end at the switch (connections reset)",
                      answer.ended_connections, answer.ended_connections == 1 ? "" : "s"));
    co_return plan;
  }
  plan.to.reset();
  plan.reason = "Job " + name + " cannot be moved: " + refusals_text(answers);
  if (answer.is_of_source || (request.to != "auto" && !request.to.empty())) co_return plan;
  plan.reason += co_await others_text(id, best_of_nodes(plan.candidates, answer.place.node), request.network,
                                      connections);
  co_return plan;
}

control::Task<std::string> Moves::others_text(JobId id, std::vector<Place> others, std::string network,
                                              wire::Connections connections) {
  if (others.empty()) co_return std::string();
  const auto answers = co_await ask(id, std::move(others), std::move(network), connections);
  if (!answers) co_return std::string();
  for (const TargetAnswer& other : *answers) {
    if (other.acceptance) co_return fmt::format("; {0} would accept the job (--to {0})", other.place.node);
  }
  co_return std::string();
}

control::Task<Result<void>> Moves::check_source(JobId id, bool leaves_node) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  wire::CheckMove check;
  check.job = id;
  check.incarnation = job->incarnation;
  check.leaves_node = leaves_node;
  check.connections = job->spec.connections;
  co_return co_await deps_.calls.call(job->node(), std::move(check), kCheckAnswer);
}

control::Task<Result<void>> Moves::check(JobId id, Place to, std::string network) {
  std::vector<Place> targets;
  targets.push_back(std::move(to));
  CKPT_CO_TRY(answers, co_await ask(id, std::move(targets), std::move(network)));
  co_return std::move(answers.front().acceptance);
}

control::Task<Result<std::vector<TargetAnswer>>> Moves::ask(JobId id, std::vector<Place> targets,
                                                            std::string network) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const wire::Connections connections = job->spec.connections;
  co_return co_await ask(id, std::move(targets), std::move(network), connections);
}

control::Task<Result<std::vector<TargetAnswer>>> Moves::ask(JobId id, std::vector<Place> targets,
                                                            std::string network,
                                                            wire::Connections connections) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  MoveQuestion question;
  question.spec = job->spec;
  question.spec.connections = connections;
  question.incarnation = job->incarnation;
  question.from = job->place();
  for (const Place& to : targets) {
    const Node* node = deps_.nodes.find(to.node);
    question.targets.push_back(
        {to, network_to(*job, to.node, network), node != nullptr && node->resets_connections});
  }
  co_return co_await ask_targets(deps_.calls, std::move(question));
}

control::Task<Result<MoveObstacles>> Moves::obstacles(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const std::string state = deps_.states.of(*job);
  if (state != "running")
    co_return Error(ErrorCode::kRefused, "Job " + job->spec.name + " is " + state +
                                             ": obstacles to a move are known only while the job runs");
  MoveObstacles found;
  CKPT_CO_TRY(within, reason_of(co_await check_source(id, false)));
  found.within_node = std::move(within);
  CKPT_CO_TRY(between, co_await obstacles_between(id, found.targets));
  found.between_nodes = std::move(between);
  co_return found;
}

control::Task<Result<std::string>> Moves::obstacles_between(JobId id, std::vector<TargetAnswer>& targets) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const auto plan = deps_.planner.plan(*job, "auto");
  std::vector<Place> places;
  if (plan) places = best_of_nodes(plan->candidates, job->node());
  if (places.empty()) co_return reason_of(co_await check_source(id, true));
  CKPT_CO_TRY(answers, co_await ask(id, std::move(places), ""));
  if (answers.front().is_of_source) co_return reason_of(answers.front().acceptance);
  targets = std::move(answers);
  const bool one_takes = std::any_of(targets.begin(), targets.end(), [](const TargetAnswer& answer) {
    return answer.acceptance.has_value();
  });
  co_return one_takes ? std::string() : refusals_text(targets);
}

control::Task<Result<Migration*>> Moves::migrate(JobId id, MigrateRequest request) {
  const std::int64_t max_ms = std::min(request.timeout_ms, kAdmissionWaitMs);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(max_ms);
  for (bool waited = false;; waited = true) {
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
    CKPT_CO_TRYV(check_program(*job, request.options));
    const auto planned = deps_.planner.plan(*job, request.to, hints_of(request));
    if (planned && planned->to) {
      CKPT_CO_TRY(migration, begin(*job, request, *planned));
      co_return co_await deps_.migration_runner.begun(migration->id);
    }
    if (!planned && planned.error().code() != ErrorCode::kRefused) co_return planned.error();
    if (planned)
      give_up_parking(*job, *planned,
                      "The job is to be moved" + (request.reason.empty() ? "" : ": " + request.reason));
    const std::string reason = planned ? planned->reason : planned.error().message();
    if (std::chrono::steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kRefused,
                      reason + fmt::format(" (the coordinator waited {} ms for this to end)", max_ms));
    if (!may_be_possible_soon(*job) && !may_answer_soon(deps_.planner.gpu_views(), request.to))
      co_return Error(ErrorCode::kRefused, reason);
    if (!waited) spdlog::info("job {} waits to be moved: {}", job_text(id), reason);
    co_await deps_.jobs.changed().wait_until(
        std::min(deadline, std::chrono::steady_clock::now() + kPlanAgain));
  }
}

}  // namespace ckpt::coordinator
