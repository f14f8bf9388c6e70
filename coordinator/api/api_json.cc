// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/api_json.h"

#include <fmt/chrono.h>

#include <algorithm>

#include "coordinator/api/image_json.h"
#include "coordinator/api/migration_views.h"
#include "coordinator/requests/redaction.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

json time_or_null(std::int64_t unix_ms) {
  return unix_ms == 0 ? json() : json(time_text(unix_ms));
}

}  // namespace

json text_or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

std::string time_text(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), unix_ms % 1000);
}

json topology_json(const wire::GpuInfo& gpu) {
  json peers = json::array();
  for (const wire::GpuPeer& peer : gpu.peers)
    peers.push_back(
        {{"index", peer.index}, {"nvlinks", peer.nvlinks}, {"common_ancestor", peer.common_ancestor}});
  return {{"bus_id", text_or_null(gpu.bus_id)},
          {"numa_node", gpu.numa_node < 0 ? json() : json(gpu.numa_node)},
          {"fabric", text_or_null(gpu.fabric)},
          {"peers", peers},
          {"mig", gpu.mig},
          {"remap_pending", gpu.remap_pending},
          {"remap_failed", gpu.remap_failed},
          {"recovery_action", gpu.recovery_action}};
}

json errors_json(const wire::GpuErrors& errors) {
  const auto pair = [](bool known, std::uint64_t corrected, std::uint64_t uncorrected) {
    return known ? json{{"corrected", corrected}, {"uncorrected", uncorrected}} : json();
  };
  return {
      {"volatile", pair(errors.volatile_known, errors.volatile_corrected, errors.volatile_uncorrected)},
      {"aggregate", pair(errors.aggregate_known, errors.aggregate_corrected, errors.aggregate_uncorrected)},
      {"remapped_rows", pair(errors.rows_known, errors.rows_corrected, errors.rows_uncorrected)}};
}

// The last hour's minutes one after the other; null: no report in that one.
json memory_json(const MemoryHistory& memory) {
  constexpr std::int64_t kMinuteMs = 60'000;
  json minutes = json::array();
  const auto& known = memory.minutes();
  const std::int64_t last = known.empty() ? 0 : known.back().minute;
  const std::int64_t earliest = last - static_cast<std::int64_t>(MemoryHistory::kMinutes) + 1;
  std::int64_t next = 0;
  for (const MemoryMinute& entry : known) {
    if (entry.minute < earliest) continue;
    for (next = minutes.empty() ? entry.minute : next; next < entry.minute; ++next)
      minutes.push_back(nullptr);
    minutes.push_back(entry.bytes);
    ++next;
  }
  return {{"now_bytes", memory.now()},
          {"peak_bytes", memory.peak()},
          {"peak_time", time_or_null(memory.peak_ms())},
          {"minutes_until", known.empty() ? json() : json(time_text(last * kMinuteMs))},
          {"minutes", minutes}};
}

// Of the node as a whole, or all that lie over a GPU: null if there is none.
json cordons_or_null(const std::vector<Cordon>& cordons) {
  if (cordons.empty()) return json();
  json list = json::array();
  for (const Cordon& cordon : cordons)
    list.push_back({{"place", to_text(cordon.scope)},
                    {"owner", to_string(cordon.owner)},
                    {"reason", text_or_null(cordon.reason)},
                    {"since", time_text(cordon.since_ms)}});
  return list;
}

json networks_json(const DataNetworks& networks) {
  json list = json::array();
  for (const wire::DataNetwork& network : networks)
    list.push_back({{"name", network.name},
                    {"address", network.address},
                    {"addresses", network.addresses()},
                    {"transport", to_string(network.transport)}});
  return list;
}

json node_json(const Node& node, const JobTable& jobs, const CordonTable& cordons,
               const PolicyTable& policy) {
  return {{"name", node.row.name},
          {"state", node.connected() ? "ready" : "unreachable"},
          {"gpu_reason", text_or_null(node.gpu_reason)},
          {"version", node.row.version},
          {"gpus", node.gpus.size()},
          {"jobs", jobs.live_on(node.row.name)},
          {"peer_address", node.row.peer_address},
          {"last_seen", time_or_null(node.row.last_seen_ms)},
          {"driver", text_or_null(node.driver_version)},
          {"rack", text_or_null(node.rack)},
          {"labels", node.labels},
          {"networks", networks_json(node.networks)},
          {"certificate_ends", time_or_null(node.certificate_ends_s * 1000)},
          {"cordons", cordons_or_null(cordons.of_node(node.row.name))},
          {"evacuation", policy.evacuation_of(node.row.name)}};
}

json fault_json(const std::optional<GpuFault>& fault) {
  if (!fault) return json();
  return {{"reason", text_or_null(fault->reason)},
          {"time", time_or_null(fault->time_ms)},
          {"cordoned", fault->cordoned},
          {"closed_until", time_or_null(fault->closed_until_ms)},
          {"text", to_text(*fault)}};
}

json gpu_json(const Node& node, const wire::GpuInfo& gpu, std::uint64_t available, JobTable& jobs,
              const CordonTable& cordons, const GpuFaults& faults) {
  const auto fault = faults.find(Place(node.row.name, gpu.index));
  const bool healthy = gpu.healthy && !(fault && fault->is_unhealthy());
  std::string reason = gpu.health_reason;
  if (gpu.healthy && !healthy) reason = to_text(*fault);
  json ids = json::array();
  std::uint64_t expected = 0;
  for (const Job& job : jobs.live()) {
    if (!holds_gpu(job.state) || job.ranks.front().place != Place(node.row.name, gpu.index)) continue;
    ids.push_back(job_text(job.id));
    expected += job.expected_bytes();
  }
  const auto memory = node.gpu_memory.find(gpu.index);
  return {{"node", node.row.name},
          {"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"model", gpu.model},
          {"total_bytes", gpu.total_bytes},
          {"free_bytes", gpu.free_bytes},
          {"available_bytes", available},
          {"healthy", healthy},
          {"reason", text_or_null(reason)},
          {"node_silent", !node.connected()},
          {"finding", fault_json(fault)},
          {"jobs", ids},
          {"expected_bytes", expected},
          {"memory", memory_json(memory == node.gpu_memory.end() ? MemoryHistory() : memory->second)},
          {"topology", topology_json(gpu)},
          {"errors", errors_json(gpu.errors)},
          {"cordons", cordons_or_null(cordons.over(Place(node.row.name, gpu.index)))}};
}

json job_json(const Job& job, const JobStates& states) {
  json ranks = json::array();
  for (const JobRank& rank : job.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"node", rank.place.node},
                     {"gpu", rank.place.gpu},
                     {"pid", rank.pid == 0 ? json() : json(rank.pid)},
                     {"state_bytes", rank.state_bytes}});
  const bool ended = is_ended(job.state);
  const bool parked = job.state == JobState::kParked;
  const std::string obstacle = ended || parked ? job.reason : states.why_not_movable(job);
  return {{"id", job_text(job.id)},
          {"name", job.spec.name},
          {"state", states.of(job)},
          {"silent_node", text_or_null(states.silent_node(job))},
          {"trouble", text_or_null(states.trouble_of(job))},
          {"node", parked ? json() : json(job.node())},
          {"gpu", parked ? json() : json(job.ranks.front().place.gpu)},
          {"ranks", parked ? json::array() : ranks},
          {"incarnation", job.incarnation},
          {"unconfirmed", job.unconfirmed},
          {"way", to_string(job.spec.way)},
          {"movable", !ended && !parked && obstacle.empty()},
          {"reason", text_or_null(obstacle)},
          {"obstacles", ended || parked || job.obstacles < 0 ? json() : json(job.obstacles)},
          {"state_bytes", job.state_bytes()},
          {"priority", job.spec.priority},
          {"memory", memory_json(job.memory)},
          {"expected_bytes", job.expected_bytes()},
          {"gpu_memory_bytes", job.spec.gpu_memory_bytes == 0 ? json() : json(job.spec.gpu_memory_bytes)},
          {"started", time_or_null(job.started_ms)},
          {"last_downtime_ms", job.last_downtime_ms ? json(*job.last_downtime_ms) : json()},
          {"exit_code", ended && job.exit_code >= 0 ? json(job.exit_code) : json()},
          {"protection", protection_json(job)}};
}

json pause_ms_json(const std::optional<ExpectedPause>& pause) {
  return pause ? json(pause->ms) : json();
}

json pause_from_json(const std::optional<ExpectedPause>& pause) {
  return pause ? json(pause->is_estimate ? "estimate" : "last_move") : json();
}

json job_detail_json(const Job& job, const JobStates& states, const NodeTable& nodes,
                     const MigrationTable& migrations) {
  json out = job_json(job, states);
  out["argv"] = command_json(job.spec.argv);
  out["cwd"] = command_json(job.spec.cwd);
  out["placed"] = text_or_null(job.placed);
  const auto here = expected_pause(job, nodes, true);
  const auto away = expected_pause(job, nodes, false);
  out["expected_pause_ms"] = {{"within_node", pause_ms_json(here)}, {"between_nodes", pause_ms_json(away)}};
  out["expected_pause_from"] = {{"within_node", pause_from_json(here)},
                                {"between_nodes", pause_from_json(away)}};
  out["last_snapshot"] = snapshot_json(job);
  out["operation"] = operation_json(job);
  json instances = json::array();
  for (const auto& [name, node] : nodes.all()) {
    for (const wire::JobInstance& instance : node.instances) {
      if (instance.job != job.id) continue;
      instances.push_back({{"incarnation", instance.incarnation},
                           {"node", name},
                           {"role", record::name_of(instance.role)},
                           {"phase", to_string(instance.phase)},
                           {"log_bytes", instance.log_bytes}});
    }
  }
  std::sort(instances.begin(), instances.end(),
            [](const json& a, const json& b) { return a["incarnation"] < b["incarnation"]; });
  out["instances"] = std::move(instances);
  json ids = json::array();
  json open;
  for (const MigrationId id : migrations.of(job.id)) {
    const Migration& migration = *migrations.find(id);
    ids.push_back(migration_text(id));
    if (migration.open())
      open = {{"id", migration_text(id)},
              {"state", state_text(migration)},
              {"from", to_text(migration.from)},
              {"to", to_text(migration.to)},
              {"mode", record::name_of(migration.options.mode)},
              {"options", record::to_answer(options_view(migration.options))}};
  }
  out["migrations"] = std::move(ids);
  out["open_migration"] = std::move(open);
  return out;
}

json candidates_json(const std::vector<Candidate>& list) {
  json candidates = json::array();
  for (const Candidate& candidate : list)
    candidates.push_back({{"node", candidate.place.node},
                          {"gpu", candidate.place.gpu},
                          {"suitable", candidate.suitable},
                          {"score", candidate.suitable ? json(candidate.score) : json()},
                          {"cause", candidate.suitable ? json() : json(candidate.cause)},
                          {"reasons", candidate.reasons}});
  return candidates;
}

json displaced_json(const std::vector<Displacement>& displaced) {
  json out = json::array();
  for (const Displacement& going : displaced)
    out.push_back({{"job", job_text(going.job)},
                   {"name", going.name},
                   {"priority", going.priority},
                   {"from", to_text(going.from)},
                   {"to", going.to ? json(to_text(*going.to)) : json()}});
  return out;
}

json run_plan_json(const SubmitRequest& request, const RunPlan& run) {
  const MigratePlan& plan = run.placing;
  return {{"dry_run", true},
          {"name", text_or_null(request.spec.name)},
          {"to", plan.to ? json(to_text(*plan.to)) : json()},
          {"gpu_memory_bytes", request.spec.gpu_memory_bytes},
          {"displaced", displaced_json(run.displaced)},
          {"possible", plan.to.has_value()},
          {"reason", text_or_null(plan.reason)},
          {"candidates", candidates_json(plan.candidates)}};
}

json gang_plan_json(const SubmitRequest& request, const GangPlan& plan) {
  json places = json::array();
  std::string to;
  for (const Place& place : plan.places) {
    places.push_back(to_text(place));
    to += (to.empty() ? "" : ", ") + to_text(place);
  }
  return {{"dry_run", true},
          {"name", text_or_null(request.spec.name)},
          {"to", text_or_null(to)},
          {"places", places},
          {"gpu_memory_bytes", request.spec.gpu_memory_bytes},
          {"displaced", json::array()},
          {"possible", !plan.places.empty()},
          {"reason", text_or_null(plan.reason)},
          {"candidates", candidates_json(plan.candidates)}};
}

json plan_json(const Job& job, const MigratePlan& plan, const wire::MigrateOptions& options,
               const NodeTable& nodes) {
  std::optional<ExpectedPause> pause;
  if (plan.to) pause = expected_pause(job, nodes, plan.to->node == job.node());
  return {{"dry_run", true},
          {"job", job_text(job.id)},
          {"from", to_text(job.ranks.front().place)},
          {"to", plan.to ? json(to_text(*plan.to)) : json()},
          // In the pause the driver saves an adopted job's memory: there is nothing to copy before.
          {"mode", record::name_of(job.spec.way == MigrationMode::kAdopted ? wire::MigrateMode::kStopCopy
                                                                           : options.mode)},
          {"options", record::to_answer(options_view(options))},
          {"state_bytes", job.state_bytes()},
          {"expected_pause_ms", pause_ms_json(pause)},
          {"expected_pause_from", pause_from_json(pause)},
          {"possible", plan.to.has_value()},
          {"reason", text_or_null(plan.reason)},
          {"warnings", plan.warnings},
          {"candidates", candidates_json(plan.candidates)}};
}

}  // namespace ckpt::coordinator
