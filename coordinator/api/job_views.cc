// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/job_views.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "coordinator/api/migration_views.h"
#include "coordinator/api/node_views.h"
#include "coordinator/api/optional_text.h"
#include "coordinator/api/plan_views.h"
#include "coordinator/fleet/expected_pause.h"
#include "coordinator/images/image_catalog.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

std::optional<int> exit_code_if_any(bool ended, int exit_code) {
  return ended && exit_code >= 0 ? std::optional(exit_code) : std::nullopt;
}

void add_rank(const Job& rank, const JobStates& states, std::vector<api::JobRank>& view) {
  for (const JobRank& process : rank.ranks) {
    api::JobRank& shown = view.emplace_back();
    shown.rank = process.rank;
    shown.node = process.place.node;
    shown.gpu = process.place.gpu;
    if (process.pid != 0) shown.pid = process.pid;
    shown.state_bytes = process.state_bytes;
    shown.job = job_text(rank.id);
    shown.name = rank.spec.name;
    shown.state = states.of(rank);
    shown.silent_node = text_if_any(states.silent_node(rank));
    shown.exit_code = exit_code_if_any(is_ended(rank.state), rank.exit_code);
    shown.reason = text_if_any(rank.reason);
  }
}

std::optional<api::Protection> protection_view(const Job& job) {
  if (!job.protection) return std::nullopt;
  const Protection& p = *job.protection;
  api::Protection view{
      .every_ms = p.every_ms, .to = text_if_any(p.folder.empty() ? p.node : p.folder), .keep = p.keep};
  if (job.snapshot) {
    const Image& image = job.snapshot->image;
    view.last_image = image_text(image);
    view.last_image_age_ms = std::max<std::int64_t>(0, wall_clock_ms() - image.barrier_ms);
    view.last_pause_ms = ms_if_known(job.snapshot->pause_ns);
  }
  view.failures = p.failures;
  view.last_error = text_if_any(p.error);
  return view;
}

std::optional<api::Snapshot> snapshot_view(const Job& job) {
  if (!job.snapshot) return std::nullopt;
  const SnapshotFacts& s = *job.snapshot;
  return api::Snapshot{
      .image = image_text(s.image),
      .created = time_text(s.image.barrier_ms),
      .suspect = text_if_any(why_suspect(job.doubts, s.image.incarnation, s.image.barrier_ms)),
      .pause_ms = ms_if_known(s.pause_ns),
      .new_bytes = s.written_bytes,
      .waited_bytes = s.waited_bytes};
}

std::optional<api::Operation> operation_view(const Job& job) {
  if (!job.operation) return std::nullopt;
  const ImageOperation& o = *job.operation;
  const bool before_event = o.stage == OperationStage::kTaking;
  return api::Operation{.verb = o.verb,
                        .stage = std::string(record::name_of(o.stage)),
                        .why = text_if_any(o.reason),
                        .image = before_event ? std::nullopt : std::optional(image_text(o.image)),
                        .deadline = time_if_any(o.deadline_ms),
                        .cancelled = text_if_any(o.cancelled),
                        .cancel = before_event ? "stop, migrate, drain or restore --force --accept-loss"
                                               : "stop or restore --force --accept-loss"};
}

// Returns the longest of the pauses that are expected for the job's ranks, or nullopt if the expected pause
// of any rank is not known.
std::optional<ExpectedPause> longest_pause(const WholeJob& job, const NodeTable& nodes, bool within_node) {
  std::optional<ExpectedPause> longest;
  for (const Job* rank : job.ranks) {
    const auto pause = expected_pause(*rank, nodes, within_node);
    if (!pause) return std::nullopt;
    if (!longest || pause->ms > longest->ms) longest = pause;
  }
  return longest;
}

void add_expected_pauses(const WholeJob& job, const NodeTable& nodes, api::JobDetail& view) {
  const auto here = longest_pause(job, nodes, true);
  view.expected_pause_ms.within_node = pause_ms_if_any(here);
  view.expected_pause_from.within_node = pause_from_if_any(here);
  const auto away = longest_pause(job, nodes, false);
  view.expected_pause_ms.between_nodes = pause_ms_if_any(away);
  view.expected_pause_from.between_nodes = pause_from_if_any(away);
}

void add_instances(const Job& rank, const NodeTable& nodes, std::vector<api::Instance>& view) {
  for (const auto& [name, node] : nodes.all())
    for (const wire::JobInstance& instance : node.instances)
      if (instance.job == rank.id)
        view.push_back({.rank = rank.rank_number(),
                        .incarnation = instance.incarnation,
                        .node = name,
                        .role = std::string(record::name_of(instance.role)),
                        .phase = std::string(to_string(instance.phase)),
                        .log_bytes = instance.log_bytes});
}

std::vector<api::Instance> instances_view(const WholeJob& job, const NodeTable& nodes) {
  std::vector<api::Instance> view;
  for (const Job* rank : job.ranks) add_instances(*rank, nodes, view);
  std::ranges::stable_sort(
      view, {}, [](const api::Instance& instance) { return std::pair(instance.rank, instance.incarnation); });
  return view;
}

api::OpenMigration open_migration_view(const Migration& migration) {
  return {.id = migration_text(migration.id),
          .state = std::string(state_text(migration)),
          .from = to_text(migration.from),
          .to = to_text(migration.to),
          .strategy = std::string(record::name_of(migration.options.strategy)),
          .options = options_view(migration.options)};
}

// Adds the job's migrations. Of the migrations of ranks that move together, only that of the first moving
// rank is listed.
void add_migrations(const WholeJob& job, const MigrationTable& migrations, api::JobDetail& view) {
  std::set<MigrationId> all;
  for (const Job* rank : job.ranks) all.merge(migrations.of(rank->id));
  for (const MigrationId id : all) {
    const Migration& migration = *migrations.find(id);
    if (migration.open() && !view.open_migration) view.open_migration = open_migration_view(migration);
    const bool is_led = migration.gang_move != id && all.contains(migration.gang_move);
    if (!is_led) view.migrations.push_back(migration_text(id));
  }
}

// Returns the first text that is not empty, in the order of the ranks.
std::optional<std::string> first_text(const WholeJob& job,
                                      const std::function<std::string(const Job&)>& text_of) {
  for (const Job* rank : job.ranks)
    if (std::string text = text_of(*rank); !text.empty()) return text;
  return std::nullopt;
}

// Returns the state of the job's worst rank, for example a rank that is disconnected, starting or stopping.
std::string worst_state(const WholeJob& job, const JobStates& states) {
  constexpr std::array kWorstFirst = {"unreachable", "unknown", "stopping", "starting",  "suspending",
                                      "restoring",   "parked",  "paused",   "migrating", "running"};
  for (const char* state : kWorstFirst) {
    const auto is_it = [&](const Job* rank) { return states.of(*rank) == state; };
    if (std::ranges::any_of(job.ranks, is_it)) return state;
  }
  return std::string(to_string(state_of(job)));
}

// Returns why the job does not stop, why it ended or is parked, or why it cannot move.
std::string reason_in_view(const WholeJob& job, const JobStates& states, const JobMoves& moves) {
  const auto stays = first_text(job, [&states](const Job& rank) {
    return is_ended(rank.state) ? std::string() : states.why_not_stopped(rank);
  });
  if (stays) return *stays;
  const JobState state = state_of(job);
  std::string reason = reason_of(job);
  if (!reason.empty() || is_ended(state) || state == JobState::kParked) return reason;
  return moves.why_not_movable(job);
}

// Adds the job's location: its ranks and GPUs, and the node and the GPU if all ranks share them.
void add_places(const WholeJob& job, const JobStates& states, api::Job& view) {
  for (const Job* rank : job.ranks) add_rank(*rank, states, view.ranks);
  if (state_of(job) == JobState::kParked) return;
  const Job& first = *job.ranks.front();
  for (const Job* rank : job.ranks) view.gpus.push_back(to_text(rank->place()));
  const auto at_node = [&first](const Job* rank) { return rank->node() == first.node(); };
  const auto at_gpu = [&first](const Job* rank) { return rank->place() == first.place(); };
  if (std::ranges::all_of(job.ranks, at_node)) view.node = first.node();
  if (std::ranges::all_of(job.ranks, at_gpu)) view.gpu = first.place().gpu;
}

// Adds the job's memory use. The memory history is that of the rank with the highest peak.
void add_memory(const WholeJob& job, api::Job& view) {
  for (const Job* rank : job.ranks) {
    view.state_bytes += rank->state_bytes();
    view.expected_bytes += rank->expected_bytes();
  }
  const auto fullest =
      std::ranges::max_element(job.ranks, {}, [](const Job* rank) { return rank->memory.peak(); });
  view.memory = memory_view((*fullest)->memory);
}

// Returns the number of obstacles to a move to another node, of all ranks, or nullopt if none was counted.
std::optional<std::int32_t> obstacles_in_view(const WholeJob& job) {
  std::optional<std::int32_t> sum;
  for (const Job* rank : job.ranks)
    if (rank->obstacles >= 0) sum = sum.value_or(0) + rank->obstacles;
  return sum;
}

}  // namespace

api::Job job_view(const WholeJob& job, const JobStates& states, const JobMoves& moves) {
  const Job& first = *job.ranks.front();
  const JobState state = state_of(job);
  const bool is_live = !is_ended(state) && state != JobState::kParked;
  const std::string reason = reason_in_view(job, states, moves);
  api::Job view;
  view.id = job_text(job.id);
  view.name = job.name;
  view.state = worst_state(job, states);
  view.silent_node = first_text(job, [&states](const Job& rank) { return states.silent_node(rank); });
  view.trouble = first_text(job, [&states](const Job& rank) { return states.trouble_of(rank); });
  add_places(job, states, view);
  view.incarnation = first.incarnation;
  view.unconfirmed = std::ranges::any_of(job.ranks, &Job::unconfirmed);
  view.mode = to_string(first.spec.mode);
  view.movable = is_live && reason.empty();
  view.reason = text_if_any(reason);
  if (is_live) view.obstacles = obstacles_in_view(job);
  view.priority = first.spec.priority;
  add_memory(job, view);
  if (first.spec.gpu_memory_bytes != 0) view.gpu_memory_bytes = first.spec.gpu_memory_bytes;
  view.started = time_if_any(first.started_ms);
  view.last_downtime_ms = first.last_downtime_ms;
  view.exit_code = exit_code_if_any(is_ended(state), exit_code_of(job));
  view.protection = protection_view(first);
  view.size = job.size;
  view.communicators = record::name_of(first.spec.gang.communicators);
  view.connections = record::name_of(first.spec.connections);
  view.namespaces = record::name_of(first.spec.namespaces);
  view.private_tmp = first.spec.private_tmp;
  return view;
}

api::JobDetail job_detail_view(const WholeJob& job, const JobStates& states, const JobMoves& moves,
                               const NodeTable& nodes, const MigrationTable& migrations) {
  const Job& first = *job.ranks.front();
  api::JobDetail view;
  view.job = job_view(job, states, moves);
  view.argv = api::Command{first.spec.argv};
  view.cwd = api::CommandText{first.spec.cwd};
  view.placed = text_if_any(first.placed);
  add_expected_pauses(job, nodes, view);
  view.last_snapshot = snapshot_view(first);
  const auto has_operation = [](const Job* rank) { return rank->operation.has_value(); };
  const auto busy = std::ranges::find_if(job.ranks, has_operation);
  if (busy != job.ranks.end()) view.operation = operation_view(**busy);
  view.instances = instances_view(job, nodes);
  add_migrations(job, migrations, view);
  return view;
}

}  // namespace ckpt::coordinator
