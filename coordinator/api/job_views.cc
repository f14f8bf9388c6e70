// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/job_views.h"

#include <algorithm>

#include "coordinator/api/migration_views.h"
#include "coordinator/api/node_views.h"
#include "coordinator/api/optional_text.h"
#include "coordinator/images/image_catalog.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

std::optional<int> exit_code_if_any(bool ended, int exit_code) {
  return ended && exit_code >= 0 ? std::optional(exit_code) : std::nullopt;
}

api::JobRank rank_view(const JobRank& rank) {
  api::JobRank view{.rank = rank.rank, .node = rank.place.node, .gpu = rank.place.gpu};
  if (rank.pid != 0) view.pid = rank.pid;
  view.state_bytes = rank.state_bytes;
  return view;
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

void add_expected_pauses(const Job& job, const NodeTable& nodes, api::JobDetail& view) {
  const auto source_of = [](const ExpectedPause& pause) {
    return pause.is_estimate ? "estimate" : "last_move";
  };
  if (const auto here = expected_pause(job, nodes, true)) {
    view.expected_pause_ms.within_node = here->ms;
    view.expected_pause_from.within_node = source_of(*here);
  }
  if (const auto away = expected_pause(job, nodes, false)) {
    view.expected_pause_ms.between_nodes = away->ms;
    view.expected_pause_from.between_nodes = source_of(*away);
  }
}

std::vector<api::Instance> instances_view(JobId job, const NodeTable& nodes) {
  std::vector<api::Instance> view;
  for (const auto& [name, node] : nodes.all())
    for (const wire::JobInstance& instance : node.instances)
      if (instance.job == job)
        view.push_back({.incarnation = instance.incarnation,
                        .node = name,
                        .role = std::string(record::name_of(instance.role)),
                        .phase = std::string(to_string(instance.phase)),
                        .log_bytes = instance.log_bytes});
  std::sort(view.begin(), view.end(),
            [](const api::Instance& a, const api::Instance& b) { return a.incarnation < b.incarnation; });
  return view;
}

void add_migrations(JobId job, const MigrationTable& migrations, api::JobDetail& view) {
  for (const MigrationId id : migrations.of(job)) {
    const Migration& migration = *migrations.find(id);
    view.migrations.push_back(migration_text(id));
    if (!migration.open()) continue;
    view.open_migration =
        api::OpenMigration{.id = migration_text(id),
                           .state = std::string(state_text(migration)),
                           .from = to_text(migration.from),
                           .to = to_text(migration.to),
                           .strategy = std::string(record::name_of(migration.options.strategy)),
                           .options = options_view(migration.options)};
  }
}

api::JobRank rank_of_gang_view(const Job& rank, const JobStates& states) {
  api::JobRank view = rank_view(rank.ranks.front());
  view.of_several = api::RankOfSeveral{.job = job_text(rank.id),
                                       .name = rank.spec.name,
                                       .state = std::string(states.of(rank)),
                                       .silent_node = text_if_any(states.silent_node(rank)),
                                       .exit_code = exit_code_if_any(is_ended(rank.state), rank.exit_code),
                                       .reason = text_if_any(rank.reason)};
  return view;
}

// Returns the state of the gang's worst rank, for example a rank that is disconnected, starting or stopping.
std::string state_of_gang(const WholeJob& gang, const JobStates& states) {
  const JobState state = state_of(gang);
  if (is_ended(state)) return std::string(to_string(state));
  for (const char* wanted : {"unreachable", "unknown", "stopping", "starting", "suspending", "restoring",
                             "parked", "paused", "migrating"}) {
    for (const Job* rank : gang.ranks)
      if (states.of(*rank) == wanted) return wanted;
  }
  return "running";
}

// Returns why the gang does not stop, why it ended, or why it cannot move. `stays` is the first rank that
// cannot move, or null.
std::string reason_of_gang(const WholeJob& gang, const JobStates& states, const Job* stays) {
  for (const Job* rank : gang.ranks) {
    if (is_ended(rank->state)) continue;
    if (std::string reason = states.why_not_stopped(*rank); !reason.empty()) return reason;
  }
  std::string reason = reason_of(gang);
  if (!reason.empty() || is_ended(state_of(gang)) || stays == nullptr) return reason;
  return stays->spec.mode == MigrationMode::kCooperative
             ? stays->reason
             : "ranks that do not call ckpt_barrier cannot be moved";
}

}  // namespace

api::Job job_view(const Job& job, const JobStates& states) {
  const bool ended = is_ended(job.state);
  const bool parked = job.state == JobState::kParked;
  const std::string obstacle = ended || parked ? job.reason : states.why_not_movable(job);
  api::Job view;
  view.id = job_text(job.id);
  view.name = job.spec.name;
  view.state = states.of(job);
  view.silent_node = text_if_any(states.silent_node(job));
  view.trouble = text_if_any(states.trouble_of(job));
  if (!parked) {
    view.node = job.node();
    view.gpu = job.ranks.front().place.gpu;
    for (const JobRank& rank : job.ranks) view.ranks.push_back(rank_view(rank));
  }
  view.incarnation = job.incarnation;
  view.unconfirmed = job.unconfirmed;
  view.mode = to_string(job.spec.mode);
  view.movable = !ended && !parked && obstacle.empty();
  view.reason = text_if_any(obstacle);
  if (!ended && !parked && job.obstacles >= 0) view.obstacles = job.obstacles;
  view.state_bytes = job.state_bytes();
  view.priority = job.spec.priority;
  view.memory = memory_view(job.memory);
  view.expected_bytes = job.expected_bytes();
  if (job.spec.gpu_memory_bytes != 0) view.gpu_memory_bytes = job.spec.gpu_memory_bytes;
  view.started = time_if_any(job.started_ms);
  view.last_downtime_ms = job.last_downtime_ms;
  view.exit_code = exit_code_if_any(ended, job.exit_code);
  view.protection = protection_view(job);
  return view;
}

api::JobDetail job_detail_view(const Job& job, const JobStates& states, const NodeTable& nodes,
                               const MigrationTable& migrations) {
  api::JobDetail view;
  view.job = job_view(job, states);
  view.argv = api::Command{job.spec.argv};
  view.cwd = api::CommandText{job.spec.cwd};
  view.placed = text_if_any(job.placed);
  add_expected_pauses(job, nodes, view);
  view.last_snapshot = snapshot_view(job);
  view.operation = operation_view(job);
  view.instances = instances_view(job.id, nodes);
  add_migrations(job.id, migrations, view);
  return view;
}

api::Job gang_view(const WholeJob& gang, const JobStates& states) {
  const Job& first = *gang.ranks.front();
  const bool ended = is_ended(state_of(gang));
  api::Job view = job_view(first, states);
  view.silent_node.reset();
  view.trouble.reset();
  view.ranks.clear();
  view.gang.emplace();
  view.state_bytes = 0;
  view.expected_bytes = 0;
  bool one_node = true;
  for (const Job* rank : gang.ranks) {
    if (const std::string silent = states.silent_node(*rank); !silent.empty()) view.silent_node = silent;
    if (const std::string trouble = states.trouble_of(*rank); !trouble.empty()) view.trouble = trouble;
    view.ranks.push_back(rank_of_gang_view(*rank, states));
    view.gang->gpus.push_back(to_text(rank->ranks.front().place));
    view.state_bytes += rank->state_bytes();
    view.expected_bytes += rank->expected_bytes();
    one_node = one_node && rank->node() == first.node();
  }
  const auto stays = std::find_if(gang.ranks.begin(), gang.ranks.end(), [](const Job* rank) {
    return !rank->movable || rank->spec.mode != MigrationMode::kCooperative;
  });
  view.id = job_text(gang.id);
  view.name = gang.name;
  view.state = state_of_gang(gang, states);
  view.node = one_node ? std::optional(first.node()) : std::nullopt;
  view.gpu.reset();
  view.gang->size = gang.size;
  view.gang->communicators = record::name_of(first.spec.gang.communicators);
  view.movable = !ended && stays == gang.ranks.end();
  view.reason = text_if_any(reason_of_gang(gang, states, stays == gang.ranks.end() ? nullptr : *stays));
  view.obstacles.reset();
  view.memory.reset();
  view.exit_code = exit_code_if_any(ended, exit_code_of(gang));
  return view;
}

api::GangDetail gang_detail_view(const WholeJob& gang, const JobStates& states, const Migration* open) {
  const Job& first = *gang.ranks.front();
  api::GangDetail view;
  view.job = gang_view(gang, states);
  view.argv = api::Command{first.spec.argv};
  view.cwd = api::CommandText{first.spec.cwd};
  view.placed = text_if_any(first.placed);
  if (open != nullptr) view.open_migration = migration_view(*open);
  return view;
}

}  // namespace ckpt::coordinator
