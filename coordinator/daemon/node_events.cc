// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/node_events.h"

#include <spdlog/spdlog.h>

#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {

void NodeEvents::on_ready(const Node& node) {
  deps_.events.add("node-ready", "node " + node.row.name + " is ready", node.row.name);
  deps_.denied.on_ready(node);
  deps_.recovery.on_ready(node);
  deps_.migration_runner.on_node_ready(node);
  deps_.jobs.changed().notify();
  deps_.health.on_node_ready(node);
}

void NodeEvents::on_lost(const Node& node) {
  deps_.events.add("node-lost", "node " + node.row.name + " is no longer connected", node.row.name);
  deps_.migration_runner.on_node_lost(node);
  deps_.orders.on_lost(node);
  deps_.jobs.changed().notify();
}

void NodeEvents::on_inventory(const Node& node) {
  const Retention retention(static_cast<std::size_t>(deps_.config.ended_jobs_kept));
  for (const JobId id : deps_.job_runner.prune(retention))
    spdlog::info("job {} was removed from the store", job_text(id));
  send_removed_jobs(node);
  deps_.recovery.on_inventory(node);
  for (const wire::JobInstance& instance : node.instances) deps_.orders.fence(node, instance);
  for (const JobId id : deps_.job_runner.on_inventory(node)) {
    if (starting_.insert(id).second)
      control::spawn(deps_.executor, "starting " + job_text(id), start_again(id));
  }
  deps_.orders.on_inventory(node);
  deps_.drains.on_inventory();
  deps_.evacuations.on_inventory();
}

void NodeEvents::on_instance(const Node& node, const wire::JobInstance& instance) {
  deps_.recovery.on_instance(node, instance);
  deps_.orders.fence(node, instance);
  deps_.job_runner.on_instance(node, instance);
  deps_.orders.on_instance(instance);
}

control::Task<> NodeEvents::start_again(JobId id) {
  co_await deps_.service.start(id);
  starting_.erase(id);
}

// Makes the node forget jobs that were removed here. This runs at each inventory, because the node may have
// been disconnected at the removal.
void NodeEvents::send_removed_jobs(const Node& node) {
  std::set<JobId> forgotten;
  for (const wire::JobInstance& instance : node.instances) {
    const bool over = is_over(instance.phase);
    if (over && deps_.jobs.was_forgotten(instance.job)) forgotten.insert(instance.job);
  }
  for (const JobId id : forgotten) {
    wire::ForgetJob message;
    message.job = id;
    deps_.calls.send(node.row.name, message);
  }
}

}  // namespace ckpt::coordinator
