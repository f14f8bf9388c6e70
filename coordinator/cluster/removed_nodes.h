// SPDX-License-Identifier: Apache-2.0
// The nodes that were removed from the cluster (`node rm`). One of them that connects is refused. It gets
// orders to end the instances that were stopped, or that continue elsewhere from an image.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of the store; kRefused for more nodes than are remembered.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/job_runner.h"
#include "coordinator/fleet/node_sessions.h"

namespace ckpt::coordinator {

class RemovedNodes : public NodeGate {
 public:
  RemovedNodes(Store& store, JobTable& jobs, JobRunner& job_runner)
      : store_(store), jobs_(jobs), job_runner_(job_runner) {}

  Result<void> load();
  [[nodiscard]] bool contains(const std::string& node) const { return removed_.contains(node); }
  // `fenced`: nothing runs there any more.
  Result<void> store(const std::string& node, bool fenced);
  Result<void> forget(const std::string& node);

  // Jobs of a removed node that run on are shown as unmanaged.
  std::optional<std::vector<wire::StopJob>> refusal(const std::string& node,
                                                    const wire::NodeInventory& has) override;

 private:
  Store& store_;
  JobTable& jobs_;
  JobRunner& job_runner_;
  std::map<std::string, bool> removed_;  // fenced?
};

}  // namespace ckpt::coordinator
