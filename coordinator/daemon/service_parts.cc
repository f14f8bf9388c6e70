// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/service_parts.h"

#include "coordinator/health/health_metrics.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

wire::Welcome welcome_of(const Config& config, const std::string& peer_token) {
  wire::Welcome welcome;
  welcome.lease_term_ns = config.lease_term_ms * kNanosPerMs;
  welcome.handover_timeout_ns = config.handover_timeout_ms * kNanosPerMs;
  welcome.peer_token = peer_token;
  return welcome;
}

}  // namespace

MoveServices::MoveServices(const CoreParts& core, gang::GangJournal journal, const std::string& peer_token,
                           const std::function<void(const Error&)>& fatal)
    : moves({core.tables.config, core.tables.nodes, core.tables.node_calls, core.tables.jobs,
             core.tables.migrations, core.migrations.runner, core.migrations.states, core.migrations.planner,
             core.images.cancels, peer_token}),
      overcommit({core.migrations.states, core.migrations.planner, core.tables.jobs, core.images.job_images,
                  moves, core.tables.migrations, core.tables.events, core.tables.executor}),
      resumes({core.tables.events, core.tables.jobs, core.tables.job_runner, core.migrations.planner,
               core.image_tables.finder, core.images.requests, overcommit, core.tables.executor}),
      service({core.tables.nodes, core.tables.node_calls, core.tables.jobs, core.tables.admission,
               core.tables.job_runner, core.migrations.planner, core.migrations.rendezvous, overcommit}),
      output_copies(core.tables.config.folder() + "/output",
                    static_cast<std::uint64_t>(core.tables.config.kept_output_mib) << 20),
      output_copier({core.tables.nodes, core.tables.node_calls, core.tables.jobs, output_copies,
                     std::chrono::milliseconds(core.tables.config.output_copy_interval_ms),
                     core.tables.executor}),
      logs(core.tables.nodes, core.tables.node_calls, core.tables.jobs, output_copies),
      gang_moves({core.tables.store_sync, core.tables.events, core.tables.nodes, core.tables.node_calls,
                  core.tables.node_frames, core.tables.jobs, core.tables.migrations,
                  core.migrations.runner.outcomes(), core.migrations.states, core.migrations.planner, moves,
                  core.image_tables.numbers, core.tables.executor},
                 std::move(journal), timing_of(core.tables.config), fatal),
      job_moves({core.tables.nodes, core.tables.jobs, core.migrations.states, core.migrations.planner, moves,
                 gang_moves}),
      recovery({core.tables.store, core.tables.events, core.tables.nodes, core.tables.node_calls,
                core.tables.jobs, core.tables.admission, core.tables.job_runner, core.tables.migrations,
                core.migrations.runner, gang_moves, core.image_tables.catalog, core.image_tables.finder,
                core.tables.executor}) {}

MaintenanceServices::MaintenanceServices(const CoreParts& core, MoveServices& moves, Images& fallback)
    : drain_table(core.tables.store, core.tables.executor),
      drains({core.tables.events, core.tables.nodes, core.tables.jobs, core.tables.migrations,
              core.tables.cordons, core.migrations.states, moves.job_moves, fallback, drain_table,
              core.tables.executor}),
      evacuation_table(core.tables.store),
      evacuations({core.tables.config, core.tables.events, core.tables.jobs, core.tables.migrations,
                   core.migrations.runner, core.tables.cordons, core.tables.health, core.tables.policy,
                   core.migrations.planner, moves.job_moves, fallback, evacuation_table,
                   core.tables.executor}) {}

NodeServices::NodeServices(const CoreParts& core, MoveServices& moves, MaintenanceServices& maintenance,
                           const std::string& peer_token)
    : events({core.tables.config, core.tables.events, core.tables.node_calls, core.tables.jobs,
              core.tables.job_runner, core.migrations.runner, moves.recovery, core.tables.denied,
              core.migrations.orders, moves.service, maintenance.drains, core.tables.health,
              maintenance.evacuations, core.tables.executor}),
      sessions({core.tables.nodes, core.tables.node_calls, core.tables.node_frames, core.tables.removed_nodes,
                events, core.tables.executor},
               welcome_of(core.tables.config, peer_token)),
      removals({core.tables.removed_nodes, core.tables.denied, core.tables.events, core.tables.nodes,
                sessions, core.tables.jobs, core.tables.job_runner, core.tables.migrations,
                moves.output_copier, core.tables.config.fence_command}) {}

ApiServices::ApiServices(const CoreParts& core, MoveServices& moves, MaintenanceServices& maintenance_parts)
    : images({core.tables.jobs, core.image_tables.catalog, core.image_tables.finder, core.image_tables.tasks,
              core.images.protections, core.images.job_images, core.images.requests, core.images.removals}),
      jobs({moves.service, moves.job_moves, core.migrations.states, moves.logs, core.tables.nodes,
            core.tables.jobs, core.tables.migrations}),
      migrations(core.tables.migrations, core.migrations.runner),
      maintenance({core.tables.nodes, core.tables.cordons, core.tables.policy, core.tables.faults,
                   maintenance_parts.drains, maintenance_parts.drain_table}),
      health({core.tables.nodes, core.tables.policy, core.tables.health, maintenance_parts.evacuations,
              maintenance_parts.evacuation_table}),
      metrics({core.tables.events, core.tables.nodes, core.tables.jobs, core.tables.migrations,
               core.migrations.states}),
      rebalancer({moves.moves, core.migrations.planner, core.migrations.states, core.tables.jobs,
                  core.tables.migrations, core.tables.events, core.tables.config.placement_margin_bytes,
                  core.tables.executor}),
      housekeeping({core.tables.config, core.tables.events, core.tables.jobs, core.tables.job_runner,
                    core.migrations.runner, maintenance_parts.drain_table, core.tables.health,
                    maintenance_parts.evacuation_table, core.tables.executor}),
      renewals({core.tables.config, core.tables.events, core.tables.nodes, core.tables.node_calls,
                core.tables.denied, core.tables.executor}),
      joins({renewals, core.tables.removed_nodes, core.tables.denied, core.tables.events},
            core.tables.config.folder() + "/used-join-tokens") {
  observe_health(metrics.registry(), {core.tables.nodes, core.tables.jobs, core.tables.faults,
                                      core.tables.policy, maintenance_parts.evacuation_table});
}

}  // namespace ckpt::coordinator
