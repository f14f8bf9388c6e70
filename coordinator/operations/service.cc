// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "coordinator/fleet/gpu_views.h"
#include "coordinator/state/usual_pause.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/random.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kStartAnswer{30};
// Nodes send an inventory every five seconds, and at changes.
constexpr std::int64_t kInventoryMs = 7'000;
constexpr std::int64_t kAdmissionWaitMs = 10'000;
constexpr std::chrono::seconds kLookAgain{1};  // whether it is still worth waiting depends on the time

// "NODE" or "NODE:GPU".
Result<std::pair<std::string, std::optional<std::uint32_t>>> parse_place(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return std::pair(text, std::optional<std::uint32_t>());
  std::uint32_t gpu = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data() + colon + 1, end, gpu);
  if (failure != std::errc{} || at != end)
    return Error(ErrorCode::kInvalidArgument, "\"" + text + "\" is not NODE, NODE:GPU or auto");
  return std::pair(text.substr(0, colon), std::optional<std::uint32_t>(gpu));
}

std::uint64_t needed_bytes(const Job& job) {
  return job.expected_bytes();
}

void count_promises(const PlanHints& hints, GpuView& view) {
  for (const auto& [where, bytes] : hints.promised) {
    view.node_jobs += where.node == view.place.node ? 1 : 0;
    if (where != view.place) continue;
    ++view.jobs;
    view.promised_bytes += bytes;
  }
}

// What is known of a node may be a moment old: one that is away may be dialing, and a driver that did not
// answer may answer the next time it is asked.
bool may_answer_soon(const std::vector<GpuView>& views, const std::string& to) {
  const auto asked = parse_place(to);
  return std::any_of(views.begin(), views.end(), [&](const GpuView& view) {
    if (to != "auto" && asked) {
      const auto& [node, gpu] = asked.assume_value();
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

}  // namespace

std::vector<GpuView> Service::gpu_views(const PlanHints& hints) const {
  std::vector<GpuView> views;
  for (const auto& [name, node] : parts_.nodes.all()) {
    for (const wire::GpuInfo& gpu : node.gpus) {
      GpuView& view = views.emplace_back();
      view.place = Place(name, gpu.index);
      view.connected = node.connected();
      view.healthy = gpu.healthy;
      view.health_reason = gpu.health_reason;
      view.closed = why_closed(view.place, hints);
      describe_gpu(view, node, gpu);
      view.total_bytes = gpu.total_bytes;
      view.free_bytes = gpu.free_bytes;
      view.promised_bytes = promised_on(view.place);
      view.shown_bytes = node.shown_bytes(gpu.index);
      view.jobs = parts_.jobs.live_on(view.place);
      view.node_jobs = parts_.jobs.live_on(name);
      view.moves_processes = node.moves_processes;
      view.process_reason = node.process_reason;
      count_migrations(view);
      count_promises(hints, view);
    }
  }
  return views;
}

// Whatever is on its way counts as there.
void Service::count_migrations(GpuView& view) const {
  for (const Migration& migration : parts_.migrations.open()) {
    const std::string& node = view.place.node;
    if (migration.from.node == node || migration.to.node == node) ++view.node_migrations;
    const bool to_node = migration.to.node == node && migration.runs_at == Side::kSource;
    if (to_node && migration.from.node != node) ++view.node_jobs;
    if (to_node && migration.to == view.place) ++view.jobs;
  }
}

std::string Service::why_closed(const Place& place, const PlanHints& hints) const {
  std::string why = parts_.cordons.why_closed(place);
  for (const auto& [scope, reason] : hints.closed) {
    if (scope.covers(place)) why += (why.empty() ? "" : "; ") + reason;
  }
  return why;
}

// Of what is free at the job's node as far as we know, so much is gone for it: its node's last list has it
// with so much.
std::uint64_t Service::shown_bytes(const Job& job) const {
  const Node* node = parts_.nodes.find(job.node());
  const std::uint64_t shown =
      node == nullptr ? 0 : node->shown_bytes(job.id, job.segments.back().incarnation);
  return std::min(shown, job.expected_bytes());
}

// What jobs are expected to take there and free memory does not lack yet, and what open migrations are about
// to bring.
std::uint64_t Service::promised_on(const Place& place) const {
  std::uint64_t promised = 0;
  for (const Job& job : parts_.jobs.live()) {
    if (!holds_gpu(job.state) && !job.operation) continue;
    const bool comes = job.operation && Place(job.operation->to_node, job.operation->to_gpu) == place;
    const bool started = !comes || job.operation->stage == OperationStage::kStarting;
    if (comes || job.ranks.front().place == place)
      promised += needed_bytes(job) - (started ? shown_bytes(job) : 0);
    const Migration* open = parts_.migrations.open_of(job.id);
    if (open != nullptr && open->phase == MigrationPhase::kPreparing && open->to == place)
      promised += needed_bytes(job);
  }
  return promised;
}

Result<void> Service::check_exists(const std::string& node_name, std::optional<std::uint32_t> gpu) const {
  const Node* node = parts_.nodes.find(node_name);
  if (node == nullptr) return Error(ErrorCode::kNotFound, "There is no node \"" + node_name + "\"");
  if (!node->connected()) return Error(ErrorCode::kRefused, "Node " + node_name + " is not connected");
  const bool found = !gpu || std::any_of(node->gpus.begin(), node->gpus.end(),
                                         [&](const wire::GpuInfo& known) { return known.index == *gpu; });
  if (!found) return Error(ErrorCode::kNotFound, "Node " + node_name + " has no GPU " + std::to_string(*gpu));
  return ok();
}

PlacementRequest Service::request_for(const SubmitRequest& request) {
  PlacementRequest wanted;
  wanted.memory_bytes = request.spec.gpu_memory_bytes;
  wanted.node = request.node;
  wanted.gpu = request.gpu;
  return wanted;
}

Result<MigratePlan> Service::plan(const SubmitRequest& request) const {
  if (request.gpus != 1)
    return Error(ErrorCode::kNotSupported, "Jobs with more than one GPU are not supported yet: use --gpus 1");
  if (request.node) {
    CKPT_TRYV(check_exists(*request.node, request.gpu));
  }
  const PlacementRequest wanted = request_for(request);
  MigratePlan plan;
  plan.candidates = rank_candidates(gpu_views(), wanted);
  if (plan.candidates.empty() || !plan.candidates.front().suitable)
    plan.reason = "No GPU can take the job: " + why_none(plan.candidates, wanted);
  else
    plan.to = plan.candidates.front().place;
  return plan;
}

control::Task<Result<Job*>> Service::submit(SubmitRequest request) {
  if (request.preempt && make_room_) {
    CKPT_CO_TRYV(co_await make_room_(request));
  }
  CKPT_CO_TRY(found, plan(request));
  if (!found.to) co_return Error(ErrorCode::kRefused, found.reason);
  const Candidate& best = found.candidates.front();
  wire::RankSpec rank;
  rank.gpu_index = best.place.gpu;
  request.spec.ranks = {rank};
  request.spec.uid = ::getuid();
  request.spec.gid = ::getgid();
  CKPT_CO_TRY(job, parts_.jobs.create(std::move(request.spec), best.place,
                                      fmt::format("{}", fmt::join(best.reasons, ", "))));
  co_return co_await start_or_explain(job->id);
}

control::Task<Result<Job*>> Service::start_or_explain(JobId id) {
  co_await start(id);
  Job* started = parts_.jobs.find(id);
  if (started == nullptr) co_return Error(ErrorCode::kInternal, "Job " + job_text(id) + " vanished");
  if (started->state == JobState::kFailed)
    co_return Error(ErrorCode::kRefused, "Job " + job_text(id) + " could not be started: " + started->reason);
  co_return started;
}

control::Task<> Service::start(JobId id) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || job->state != JobState::kStarting) co_return;
  wire::StartJob message;
  message.spec = job->spec;
  auto started = co_await parts_.nodes.call(job->node(), message, kStartAnswer);
  Job* now = parts_.jobs.find(id);
  if (now == nullptr) co_return;
  if (started) {
    parts_.jobs.started(*now);
    co_return;
  }
  const Error& error = started.assume_error();
  const bool unknown = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
  spdlog::warn("starting job {}: {}", job_text(id), error.to_string());
  if (!unknown) parts_.jobs.failed_to_start(*now, error);
}

Result<void> Service::stop(Job& job, std::int64_t grace_ms) {
  if (is_ended(job.state)) return ok();
  if (job.operation && image_work_.stop) {
    CKPT_TRY(stops, image_work_.stop(job.id, grace_ms));
    if (stops) return ok();
  }
  if (job.state == JobState::kParked) {
    parts_.jobs.stop_parked(job);
    return ok();
  }
  CKPT_TRYV(parts_.jobs.stop_requested(job, grace_ms));
  parts_.stops.order(job.id);
  // An aborted migration has told by now where the job is.
  if (!is_ended(job.state) && !parts_.nodes.connected(job.node())) parts_.jobs.stop_away(job);
  return ok();
}

control::Task<> Service::wait_for_end(JobId id, Deadline deadline) {
  while (true) {
    const Job* job = parts_.jobs.find(id);
    if (job == nullptr || is_ended(job->state) || std::chrono::steady_clock::now() >= deadline) co_return;
    co_await parts_.jobs.changed().wait_until(deadline);
  }
}

std::string Service::job_state(const Job& job) const {
  if (job.operation && job.operation->stops) return "stopping";
  if (job.operation && job.operation->goal == OperationGoal::kParked) return "suspending";
  const bool no_instance = job.state == JobState::kParked || job.state == JobState::kRestoring;
  if (is_ended(job.state) || no_instance) return std::string(to_string(job.state));
  if (!parts_.nodes.connected(job.node())) return "unreachable";
  if (job.stop_requested) return "stopping";
  const Node* node = parts_.nodes.find(job.node());
  const wire::JobInstance* instance = node->find(job.id, job.segments.back().incarnation);
  if (instance != nullptr && instance->unknown) return "unknown";
  if (parts_.migrations.open_of(job.id) != nullptr) return "migrating";
  if (job.phase == wire::JobPhase::kPaused) return "paused";
  if (job.state == JobState::kStarting || job.phase == wire::JobPhase::kStarting) return "starting";
  return "running";
}

std::string Service::why_not_movable(const Job& job) const {
  const std::string state = job_state(job);
  if (const Migration* open = parts_.migrations.open_of(job.id))
    return "migration " + migration_text(open->id) + " of it is open";
  if (state == "unknown") return job.reason;
  // A snapshot gives way: its node has the job go on first.
  const bool passes = state == "paused" && image_work_.is_stored && image_work_.is_stored(job.id);
  if (state != "running" && !passes) return "it is " + state;
  if (!job.movable) return job.reason.empty() ? "it has not said that it can be moved" : job.reason;
  return {};
}

PlacementRequest Service::request_for(const Job& job, const std::vector<GpuView>& views) const {
  PlacementRequest wanted;
  const Place from = job.ranks.front().place;
  wanted.not_here = from;
  wanted.near = {from};
  wanted.memory_bytes = needed_bytes(job);
  wanted.memory_why = why_expected(job);
  wanted.margin_bytes = static_cast<std::uint64_t>(parts_.config.placement_margin_bytes);
  for (const GpuView& view : views) {
    if (view.place != from) continue;
    wanted.preferred_model = view.model;
    wanted.driver = view.driver;
  }
  // The driver restores a context only on the same chip, and the source's node must be able to dump, too.
  wanted.same_model = wanted.host_process = job.spec.way != wire::Way::kCooperative;
  return wanted;
}

bool Service::nodes_may_come_back() const {
  const auto& nodes = parts_.nodes.all();
  return std::chrono::steady_clock::now() < started_ + kReturnTime &&
         std::any_of(nodes.begin(), nodes.end(),
                     [](const auto& at) { return !at.second.connected() && at.second.gpus.empty(); });
}

bool Service::nodes_are_away() const {
  const auto& nodes = parts_.nodes.all();
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& at) { return !at.second.connected(); });
}

bool Service::is_lasting(const Job& job) const {
  return job_state(job) == "running" && !job.movable && !job.reason.empty();
}

Result<MigratePlan> Service::plan(const Job& job, const std::string& to, const PlanHints& hints) {
  std::vector<GpuView> views = gpu_views(hints);
  PlacementRequest wanted = request_for(job, views);
  // It does not stand in its own way.
  for (GpuView& view : views) {
    if (view.place.node == job.node() && view.node_jobs > 0) --view.node_jobs;
  }
  if (to != "auto" && !to.empty()) {
    CKPT_TRY(place, parse_place(to));
    CKPT_TRYV(check_exists(place.first, place.second));
    wanted.node = place.first;
    wanted.gpu = place.second;
  }
  MigratePlan plan;
  plan.candidates = rank_candidates(views, wanted);
  plan.reason = why_not_movable(job);
  if (!plan.reason.empty()) {
    plan.reason = "Job " + job.spec.name + " cannot be moved: " + plan.reason;
    plan.passing = !is_lasting(job);
  } else if (!plan.candidates.empty() && plan.candidates.front().suitable) {
    plan.to = plan.candidates.front().place;
  } else {
    plan.reason = "No GPU can take " + job.spec.name + ": " + why_none(plan.candidates, wanted);
    plan.passing =
        nodes_may_come_back() || std::any_of(plan.candidates.begin(), plan.candidates.end(),
                                             [](const Candidate& candidate) { return candidate.passing; });
  }
  return plan;
}

PlacementRequest Service::request_for(const Job& job, const Image& image) const {
  PlacementRequest wanted;
  wanted.memory_bytes = std::max(needed_bytes(job), image.state_bytes);
  wanted.margin_bytes = static_cast<std::uint64_t>(parts_.config.placement_margin_bytes);
  wanted.preferred_model = image.gpu_model;
  wanted.same_model = wanted.host_process = job.spec.way != wire::Way::kCooperative;
  return wanted;
}

Result<MigratePlan> Service::plan_restore(const Job& job, const Image& image, const std::string& to,
                                          const PlanHints& hints) {
  PlacementRequest wanted = request_for(job, image);
  if (to != "auto" && !to.empty()) {
    CKPT_TRY(place, parse_place(to));
    CKPT_TRYV(check_exists(place.first, place.second));
    wanted.node = place.first;
    wanted.gpu = place.second;
  }
  std::vector<GpuView> views = gpu_views(hints);
  for (GpuView& view : views) {
    if (!holds_gpu(job.state) || view.place != job.ranks.front().place) continue;
    view.free_bytes = std::min(view.total_bytes, view.free_bytes + shown_bytes(job));
    view.promised_bytes -= std::min(view.promised_bytes, job.expected_bytes() - shown_bytes(job));
    view.jobs -= std::min(view.jobs, 1U);
  }
  MigratePlan plan;
  // Where it lies it is read without the link.
  if (image.folder.empty() && !wanted.node) {
    PlacementRequest at_home = wanted;
    at_home.node = image.node;
    plan.candidates = rank_candidates(views, at_home);
  }
  if (plan.candidates.empty() || !plan.candidates.front().suitable)
    plan.candidates = rank_candidates(views, wanted);
  if (!plan.candidates.empty() && plan.candidates.front().suitable)
    plan.to = plan.candidates.front().place;
  else
    plan.reason = "No GPU can take " + job.spec.name + ": " + why_none(plan.candidates, wanted);
  return plan;
}

Result<wire::MigrationPlan> Service::make_plan(const Job& job, const Place& to,
                                               const wire::MigrateOptions& options) const {
  const Node* source = parts_.nodes.find(job.node());
  const Node* target = parts_.nodes.find(to.node);
  if (source == nullptr || target == nullptr)
    return Error(ErrorCode::kInternal, "A node of the plan vanished");
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
  plan.peer_token = parts_.peer_token;
  CKPT_TRY(key, random_bytes(wire::kFingerprintKeyBytes));
  CKPT_TRY(session, random_bytes(wire::kSessionTokenBytes));
  plan.fingerprint_key = std::move(key);
  plan.session_token = std::move(session);
  plan.lease_term_ns = parts_.config.lease_term_ms * kNanosPerMs;
  plan.switch_timeout_ns = parts_.config.switch_timeout_ms * kNanosPerMs;
  plan.options = options;
  plan.last_pause = usual_pause(job.pauses);
  return plan;
}

Result<Migration*> Service::begin(const Job& job, const MigrateRequest& request, const MigratePlan& plan) {
  if (!plan.to) return Error(ErrorCode::kRefused, plan.reason);
  CKPT_TRY(full, make_plan(job, *plan.to, request.options));
  MigrationTable::Request begun;
  begun.to = *plan.to;
  begun.options = request.options;
  begun.timeout_ms = request.timeout_ms;
  begun.why = request.why;
  return parts_.migrations.begin(job, begun, std::move(full));
}

bool Service::give_up_parking(const Job& job, const MigratePlan& plan, const std::string& why) {
  const bool has_place = !plan.candidates.empty() && plan.candidates.front().suitable;
  return has_place && give_up_parking(job, why);
}

bool Service::give_up_parking(const Job& job, const std::string& why) {
  return job.operation && image_work_.give_up && image_work_.give_up(job.id, why);
}

bool Service::may_be_possible_soon(const Job& job) const {
  const std::string state = job_state(job);
  // Whatever has paused it lets it go on.
  if (state == "paused") return true;
  if (job.operation && !job.operation->cancelled.empty() && !job.operation->stops) return true;
  const bool not_described_yet = state == "running" && !job.movable && job.reason.empty();
  if (state == "starting" || not_described_yet) return true;
  if (!why_not_movable(job).empty()) return false;
  // What ended gives its memory back a moment later, and its node says so with its next inventory.
  const std::int64_t since = wall_clock_ms() - kInventoryMs;
  return parts_.jobs.newest_end_ms() > since || parts_.migrations.newest_end_ms() > since;
}

control::Task<Result<Migration*>> Service::migrate(JobId id, MigrateRequest request) {
  const std::int64_t max_ms = std::min(request.timeout_ms, kAdmissionWaitMs);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(max_ms);
  for (bool waited = false;; waited = true) {
    const Job* job = parts_.jobs.find(id);
    if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
    const auto planned = plan(*job, request.to);
    if (planned && planned.assume_value().to) {
      CKPT_CO_TRY(migration, begin(*job, request, planned.assume_value()));
      co_return co_await parts_.migrations.begun(migration->id);
    }
    if (!planned && planned.assume_error().code() != ErrorCode::kRefused) co_return planned.assume_error();
    if (planned)
      give_up_parking(*job, planned.assume_value(),
                      "The job is to be moved" + (request.why.empty() ? "" : ": " + request.why));
    const std::string reason = planned ? planned.assume_value().reason : planned.assume_error().message();
    if (std::chrono::steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kRefused,
                      reason + fmt::format(" (for {} ms: that long it was waited for)", max_ms));
    if (!may_be_possible_soon(*job) && !may_answer_soon(gpu_views(), request.to))
      co_return Error(ErrorCode::kRefused, reason);
    if (!waited) spdlog::info("job {} waits to be moved: {}", job_text(id), reason);
    co_await parts_.jobs.changed().wait_until(
        std::min(deadline, std::chrono::steady_clock::now() + kLookAgain));
  }
}

}  // namespace ckpt::coordinator
