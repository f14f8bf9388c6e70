// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/image_parts.h"

namespace ckpt::coordinator {

ImageTables::ImageTables(const ImageDependencies& deps)
    : catalog(deps.catalog),
      numbers(deps.store),
      tasks(deps.executor, deps.store.id_tag()),
      finder(deps.store, deps.nodes, deps.jobs, catalog),
      reports({deps.events, deps.frames, deps.jobs, catalog, numbers, tasks, deps.running}) {}

Result<void> ImageTables::load() {
  CKPT_TRYV(catalog.load());
  numbers.seen(catalog.last_sequence());
  return ok();
}

ImageServices::ImageServices(const ImageDependencies& deps, ImageTables& tables)
    : grants(deps.calls),
      orders({deps.calls, deps.jobs, tables.catalog, tables.numbers, deps.running, grants, deps.executor}),
      snapshots({deps.events, deps.nodes, deps.jobs, deps.migrations, deps.states, deps.running,
                 tables.reports, orders, tables.tasks, deps.executor}),
      removals({deps.config, deps.events, deps.nodes, deps.calls, deps.jobs, tables.catalog, deps.executor}),
      open(deps.config, tables.tasks, deps.job_runner.acted()),
      runner({deps.config, deps.nodes, deps.calls, deps.orders, deps.jobs, deps.job_runner, deps.view,
              tables.catalog, tables.reports, tables.tasks, orders, grants, open, deps.rendezvous,
              deps.executor}),
      cancels({deps.jobs, deps.job_runner, orders}),
      restores({deps.nodes, deps.calls, deps.jobs, deps.view, deps.migrations, deps.states, deps.planner,
                tables.catalog, tables.finder}),
      requests({deps.nodes, deps.jobs, deps.job_runner, deps.view, deps.admission, restores, tables.catalog,
                tables.finder, tables.tasks, snapshots, orders, open, runner, cancels}),
      gang_images({deps.events, deps.nodes, deps.calls, deps.jobs, tables.catalog, tables.numbers,
                   tables.reports, tables.tasks, deps.running, orders, snapshots, runner, deps.executor}),
      gang_restores({deps.calls, deps.jobs, tables.catalog, tables.finder, tables.tasks, deps.planner,
                     restores, runner, deps.executor}),
      job_images({deps.jobs, snapshots, requests, gang_images, gang_restores}),
      protections({deps.events, deps.nodes, deps.jobs, job_images, orders, deps.executor}) {}

void ImageServices::start() {
  runner.start();
  protections.start();
  removals.start();
}

}  // namespace ckpt::coordinator
