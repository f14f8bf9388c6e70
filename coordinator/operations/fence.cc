// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/fence.h"

#include <spdlog/spdlog.h>

namespace ckpt::coordinator {

void Fence::on_inventory(const Node& node) {
  for (const wire::JobInstance& instance : node.instances) on_instance(node, instance);
}

void Fence::on_instance(const Node& node, const wire::JobInstance& instance) {
  const Job* job = jobs_.find(instance.job);
  if (job == nullptr || is_over(instance.phase) || instance.incarnation > job->fenced) return;
  spdlog::warn("node {} has an instance of {} that must not run any more: it is ended", node.row.name,
               job_text(job->id));
  wire::StopJob message;
  message.job = job->id;
  message.incarnation = job->fenced;
  calls_.tell(node.row.name, message);
}

}  // namespace ckpt::coordinator
