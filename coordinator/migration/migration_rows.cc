// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/migration_rows.h"

#include <fmt/format.h>

#include <utility>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

Migration row_of_move(const Job& rank, const Place& to, const wire::MigrationPlan& plan) {
  Migration row;
  row.job = rank.id;
  row.job_name = rank.spec.name;
  row.from = rank.place();
  row.to = to;
  row.options = plan.options;
  row.network = plan.network;
  row.base = rank.incarnation;
  row.incarnation = rank.incarnation;
  row.started_ms = wall_clock_ms();
  return row;
}

Migration row_of_record(MigrationId id, JobId rank, Incarnation base, const wire::MigrationPlan* plan) {
  Migration row;
  row.id = id;
  row.job = rank;
  row.base = base;
  row.incarnation = base;
  row.started_ms = wall_clock_ms();
  if (plan == nullptr) return row;
  row.job_name = plan->spec.name;
  row.options = plan->options;
  row.network = plan->network;
  row.from = Place(plan->source_node, plan->spec.ranks.front().gpu_index);
  row.to = Place(plan->target_node, plan->target_ranks.front().gpu_index);
  return row;
}

Result<Migration*> begin_row(MigrationTable& table, EventLog& events, Migration row,
                             wire::MigrationPlan plan) {
  CKPT_TRY(created, table.create(std::move(row)));
  table.store_plan(created->id, std::move(plan));
  table.mark_unsettled(created->id);
  events.add("migration-begun",
             fmt::format("migration {} from {} to {}{}", label(*created), to_text(created->from),
                         to_text(created->to), created->reason.empty() ? "" : ": " + created->reason),
             created->from.node, created->job, created->id);
  return created;
}

}  // namespace ckpt::coordinator
