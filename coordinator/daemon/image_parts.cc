// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/image_parts.h"

namespace ckpt::coordinator {

ImageBooks::ImageBooks(const ImageSurroundings& around)
    : catalog(around.catalog),
      numbers(around.store),
      tasks(around.executor, around.store.id_tag()),
      finder(around.store, around.nodes, around.jobs, catalog),
      reports({around.events, around.frames, around.jobs, catalog, numbers, tasks, around.running}) {}

Result<void> ImageBooks::load() {
  CKPT_TRYV(catalog.load());
  numbers.seen(catalog.last_sequence());
  return ok();
}

ImageActs::ImageActs(const ImageSurroundings& around, ImageBooks& books)
    : grants(around.calls),
      orders(
          {around.calls, around.jobs, books.catalog, books.numbers, around.running, grants, around.executor}),
      snapshots({around.events, around.nodes, around.jobs, around.migrations, around.states, around.running,
                 books.reports, orders, books.tasks, around.executor}),
      protections({around.events, around.nodes, around.jobs, snapshots, orders, around.executor}),
      removals({around.config, around.events, around.nodes, around.calls, around.jobs, books.catalog,
                around.executor}),
      open(around.config, books.tasks, around.job_runner.acted()),
      runner({around.config, around.nodes, around.calls, around.orders, around.jobs, around.job_runner,
              around.view, books.catalog, books.reports, books.tasks, orders, grants, open, around.rendezvous,
              around.executor}),
      cancels({around.jobs, around.job_runner, orders}),
      restores({around.nodes, around.calls, around.jobs, around.migrations, around.states, around.planner,
                books.catalog, books.finder}),
      requests({around.nodes, around.jobs, around.job_runner, around.admission, restores, books.catalog,
                books.finder, books.tasks, snapshots, orders, open, runner, cancels}) {}

void ImageActs::start() {
  runner.start();
  protections.start();
  removals.start();
}

}  // namespace ckpt::coordinator
