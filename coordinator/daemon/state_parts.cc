// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/state_parts.h"

namespace ckpt::coordinator {

std::string store_path(const Config& config) {
  return config.folder() + "/state.db";
}

migration::Timing timing_of(const Config& config) {
  migration::Timing timing;
  timing.lease_term_ms = static_cast<std::uint32_t>(config.lease_term_ms);
  timing.handover_timeout_ms = static_cast<std::uint32_t>(config.handover_timeout_ms);
  return timing;
}

CoordinatorTables::CoordinatorTables(control::asio::any_io_executor on, Config settings, Store opened)
    : executor(std::move(on)),
      config(std::move(settings)),
      store(std::move(opened)),
      store_sync(store, store_path(config), executor),
      events(store, executor),
      cordons(store, events, executor),
      policy(store, events, executor),
      migrations(store, executor),
      jobs(store, executor),
      nodes(store),
      catalog(store,
              [this](JobId id, Incarnation incarnation, std::int64_t barrier_ms) {
                const Job* job = jobs.find(id);
                return job == nullptr ? std::nullopt
                                      : std::optional(why_suspect(job->doubts, incarnation, barrier_ms));
              }),
      job_view(config, nodes, migrations, catalog),
      job_runner(jobs, events, job_view),
      admission(jobs, job_runner, events),
      removed_nodes(store, jobs, job_runner),
      node_calls(nodes, store_sync, node_frames, executor),
      health({store, events, node_calls, node_frames, policy, executor}),
      faults(health, cordons, policy),
      denied({store, events, nodes, node_calls}) {}

MigrationServices::MigrationServices(CoordinatorTables& tables, migration::Journal journal,
                                     const std::function<void(const Error&)>& fatal)
    : runner({tables.migrations, tables.store_sync, tables.events, tables.nodes, tables.node_calls,
              tables.node_frames, tables.jobs, tables.job_runner, tables.executor},
             std::move(journal), timing_of(tables.config), fatal),
      orders({tables.nodes, tables.node_calls, tables.jobs, tables.job_runner, tables.job_view,
              tables.migrations, runner, tables.executor}),
      backups(tables.store, runner, tables.config.folder(), tables.config.certificate_authority),
      states(tables.nodes, tables.migrations, snapshots, tables.faults),
      planner({tables.config, tables.nodes, tables.jobs, tables.migrations, tables.cordons, tables.faults,
               states}),
      rendezvous({tables.nodes, tables.node_calls, tables.jobs}) {}

ImageDependencies image_dependencies(CoordinatorTables& tables, MigrationServices& migrations) {
  return {tables.config,         tables.store,       tables.events,     tables.nodes,
          tables.node_calls,     tables.node_frames, tables.jobs,       tables.job_runner,
          tables.job_view,       tables.admission,   tables.catalog,    tables.migrations,
          migrations.states,     migrations.planner, migrations.orders, migrations.snapshots,
          migrations.rendezvous, tables.executor};
}

}  // namespace ckpt::coordinator
