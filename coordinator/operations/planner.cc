// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/planner.h"

#include <algorithm>
#include <charconv>

#include "coordinator/fleet/gpu_views.h"

namespace ckpt::coordinator {
namespace {

std::uint64_t needed_bytes(const Job& job) {
  return job.expected_bytes();
}

// Returns kInvalidArgument or kNotSupported for a request that only a job of one rank can make.
Result<void> check_shape(const SubmitRequest& request) {
  if (request.gang.ranks <= 1) return ok();
  if (request.preempt)
    return Error(ErrorCode::kNotSupported, "--preempt is not supported for a job of several ranks yet");
  if (request.gpu)
    return Error(ErrorCode::kInvalidArgument,
                 "A job of several ranks needs a node, not a single GPU: name the node without a GPU");
  return ok();
}

}  // namespace

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

Result<void> check_exists(const NodeTable& nodes, const std::string& node_name,
                          std::optional<std::uint32_t> gpu) {
  const Node* node = nodes.find(node_name);
  if (node == nullptr) return Error(ErrorCode::kNotFound, "There is no node \"" + node_name + "\"");
  if (!node->connected()) return Error(ErrorCode::kRefused, "Node " + node_name + " is not connected");
  const bool found = !gpu || std::any_of(node->gpus.begin(), node->gpus.end(),
                                         [&](const wire::GpuInfo& known) { return known.index == *gpu; });
  if (!found) return Error(ErrorCode::kNotFound, "Node " + node_name + " has no GPU " + std::to_string(*gpu));
  return ok();
}

std::vector<GpuView> Planner::gpu_views(const PlanHints& hints) const {
  std::vector<GpuView> views;
  for (const auto& [name, node] : deps_.nodes.all()) {
    for (const wire::GpuInfo& gpu : node.gpus) {
      GpuView& view = views.emplace_back();
      view.place = Place(name, gpu.index);
      view.connected = node.connected();
      view.healthy = gpu.healthy;
      view.health_reason = gpu.health_reason;
      view.closed = why_closed(view.place, hints);
      view.suspect = why_suspect(view.place);
      describe_gpu(view, node, gpu);
      view.total_bytes = gpu.total_bytes;
      view.free_bytes = gpu.free_bytes;
      view.promised_bytes = promised_on(view.place);
      view.shown_bytes = node.shown_bytes(gpu.index);
      view.jobs = deps_.jobs.live_on(view.place);
      view.node_jobs = deps_.jobs.live_on(name);
      view.moves_processes = node.moves_processes;
      view.gives_namespaces = node.gives_namespaces;
      view.process_reason = node.process_reason;
      count_migrations(view);
    }
  }
  count_promised(hints.promised, views);
  return views;
}

// Counts the open migrations of the node, and the moves in preparation. A job on its way to the node or GPU
// counts as already there.
void Planner::count_migrations(GpuView& view) const {
  for (const Migration& migration : deps_.migrations.open()) {
    const std::string& node = view.place.node;
    if (migration.from.node == node || migration.to.node == node) ++view.node_migrations;
    const bool to_node = migration.to.node == node && migration.runs_at == Side::kSource;
    if (to_node && migration.from.node != node) ++view.node_jobs;
    if (to_node && migration.to == view.place) ++view.jobs;
  }
  for (const auto& [job, claims] : deps_.migrations.claims()) {
    for (const MoveClaim& claim : claims) {
      if (claim.to.node == view.place.node && claim.from.node != view.place.node) ++view.node_jobs;
      if (claim.to != view.place) continue;
      ++view.jobs;
      view.promised_bytes += claim.bytes;
    }
  }
}

std::string Planner::why_closed(const Place& place, const PlanHints& hints) const {
  std::string closed = deps_.cordons.why_closed(place);
  for (const auto& [scope, reason] : hints.closed) {
    if (scope.covers(place)) closed += (closed.empty() ? "" : "; ") + reason;
  }
  return closed;
}

// Returns why the GPU is suspect. A cordon by health is a separate objection.
std::string Planner::why_suspect(const Place& place) const {
  const auto fault = deps_.faults.find(place);
  return fault && fault->closed_until_ms != 0 && !fault->cordoned ? to_text(*fault) : "";
}

// Returns the job's memory that the node's last report of free memory already excludes.
std::uint64_t Planner::shown_bytes(const Job& job) const {
  const Node* node = deps_.nodes.find(job.node());
  const std::uint64_t shown =
      node == nullptr ? 0 : node->shown_bytes(job.id, job.segments.back().incarnation);
  return std::min(shown, job.expected_bytes());
}

// Returns the memory on the GPU that is promised: growth that jobs there are expected to need, and memory of
// open migrations to the GPU.
std::uint64_t Planner::promised_on(const Place& place) const {
  std::uint64_t promised = 0;
  for (const Job& job : deps_.jobs.live()) {
    if (!holds_gpu(job.state) && !job.operation) continue;
    const bool comes = job.operation && Place(job.operation->to_node, job.operation->to_gpu) == place;
    const bool started = !comes || job.operation->stage == OperationStage::kStarting;
    if (comes || job.place() == place) promised += needed_bytes(job) - (started ? shown_bytes(job) : 0);
    const Migration* open = deps_.migrations.open_of(job.id);
    if (open != nullptr && open->phase == MigrationPhase::kPreparing && open->to == place)
      promised += needed_bytes(job);
  }
  return promised;
}

PlacementRequest Planner::request_for(const SubmitRequest& request) {
  PlacementRequest wanted;
  wanted.memory_bytes = request.spec.gpu_memory_bytes;
  wanted.node = request.node;
  wanted.gpu = request.gpu;
  wanted.own_namespaces = request.spec.has_own_namespaces();
  if (request.gang.nodes.size() == 1) wanted.node = request.gang.nodes.front();
  return wanted;
}

Result<GangPlan> Planner::plan(const SubmitRequest& request) const {
  CKPT_TRYV(check_shape(request));
  if (request.node) {
    CKPT_TRYV(check_exists(deps_.nodes, *request.node, request.gpu));
  }
  for (const std::string& node : request.gang.nodes) {
    CKPT_TRYV(check_exists(deps_.nodes, node, std::nullopt));
  }
  const std::vector<GpuView> views = gpu_views();
  const PlacementRequest wanted = request_for(request);
  GangPlan plan = place_gang(rank_candidates(views, wanted), views, request.gang);
  const bool is_any_suitable = !plan.candidates.empty() && plan.candidates.front().suitable;
  if (!is_any_suitable) plan.reason = "No GPU can hold the job: " + why_none(plan.candidates, wanted);
  return plan;
}

Result<GangPlan> Planner::plan_gang(PlacementRequest wanted, const std::vector<std::string>& nodes,
                                    const GangShape& shape, const PlanHints& hints) const {
  for (const std::string& node : nodes) {
    CKPT_TRYV(check_exists(deps_.nodes, node, std::nullopt));
  }
  const std::vector<GpuView> views = gpu_views(hints);
  return place_gang(rank_candidates(views, wanted), views, shape);
}

PlacementRequest Planner::request_for(const Job& job, const std::vector<GpuView>& views) const {
  PlacementRequest wanted;
  const Place from = job.place();
  wanted.not_here = from;
  wanted.near = {from};
  if (const Node* source = deps_.nodes.find(from.node)) wanted.networks = source->networks;
  wanted.memory_bytes = needed_bytes(job);
  wanted.memory_reason = why_expected(job);
  wanted.margin_bytes = static_cast<std::uint64_t>(deps_.config.placement_margin_bytes);
  for (const GpuView& view : views) {
    if (view.place != from) continue;
    wanted.preferred_model = view.model;
    wanted.driver = view.driver;
  }
  // The driver restores a context only on the same chip. The source's node must also be able to dump
  // processes.
  wanted.same_model = wanted.host_process = job.spec.mode != MigrationMode::kCooperative;
  wanted.own_namespaces = job.spec.has_own_namespaces();
  return wanted;
}

bool Planner::nodes_may_come_back() const {
  const auto& nodes = deps_.nodes.all();
  return std::chrono::steady_clock::now() < started_ + kReturnTime &&
         std::any_of(nodes.begin(), nodes.end(),
                     [](const auto& at) { return !at.second.connected() && at.second.gpus.empty(); });
}

bool Planner::nodes_are_away() const {
  const auto& nodes = deps_.nodes.all();
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& at) { return !at.second.connected(); });
}

Result<MigratePlan> Planner::plan(const Job& job, const std::string& to, const PlanHints& hints) const {
  std::vector<GpuView> views = gpu_views(hints);
  PlacementRequest wanted = request_for(job, views);
  wanted.network = hints.network;
  CKPT_TRYV(name_target(wanted, to));
  MovingJob moving;
  moving.name = job.spec.name;
  moving.from = job.place();
  moving.obstacle = deps_.states.why_not_movable(job);
  moving.stays_put = deps_.states.stays_put(job);
  moving.nodes_may_return = nodes_may_come_back();
  return plan_move(std::move(views), wanted, moving);
}

// Adds the user's target, NODE or NODE:GPU, to the request. "auto" adds none.
Result<void> Planner::name_target(PlacementRequest& wanted, const std::string& to) const {
  if (to == "auto" || to.empty()) return ok();
  CKPT_TRY(place, parse_place(to));
  CKPT_TRYV(check_exists(deps_.nodes, place.first, place.second));
  wanted.node = place.first;
  wanted.gpu = place.second;
  return ok();
}

PlacementRequest Planner::request_for(const Job& job, const Image& image) const {
  PlacementRequest wanted;
  wanted.memory_bytes = std::max(needed_bytes(job), image.state_bytes);
  wanted.margin_bytes = static_cast<std::uint64_t>(deps_.config.placement_margin_bytes);
  wanted.preferred_model = image.gpu_model;
  wanted.same_model = wanted.host_process = job.spec.mode != MigrationMode::kCooperative;
  wanted.own_namespaces = job.spec.has_own_namespaces();
  return wanted;
}

Result<MigratePlan> Planner::plan_restore(const Job& job, const Image& image, const std::string& to,
                                          const PlanHints& hints) const {
  PlacementRequest wanted = request_for(job, image);
  CKPT_TRYV(name_target(wanted, to));
  ReturningJob returning;
  returning.name = job.spec.name;
  if (holds_gpu(job.state)) {  // a job that will be revived has no GPU yet
    returning.held = job.place();
    returning.shown_bytes = shown_bytes(job);
  }
  returning.expected_bytes = job.expected_bytes();
  if (image.folder.empty()) returning.image_node = image.node;
  return plan_return(gpu_views(hints), wanted, returning);
}

}  // namespace ckpt::coordinator
