// SPDX-License-Identifier: Apache-2.0
// The nodes that were removed from the cluster (`node rm`). A removed node that connects is refused. It
// receives orders to end instances that were stopped, or whose jobs continue elsewhere from an image.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of the store; kRefused for more nodes than can be stored.
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
  // Returns the removed nodes by name. The value is true if the node is fenced: nothing runs on it any more.
  [[nodiscard]] const std::map<std::string, bool>& all() const { return removed_; }
  // Returns kRefused if no more nodes can be stored.
  [[nodiscard]] Result<void> check_room(const std::string& node) const;
  // Stores that the node was removed. `fenced` means that nothing runs on the node any more.
  Result<void> store(const std::string& node, bool fenced);
  Result<void> forget(const std::string& node);

  // Returns the stop orders for a removed node, or nullopt for another node. Jobs that continue to run on a
  // removed node are recorded as unmanaged.
  std::optional<std::vector<wire::StopJob>> refusal(const std::string& node,
                                                    const wire::NodeInventory& has) override;

 private:
  Store& store_;
  JobTable& jobs_;
  JobRunner& job_runner_;
  std::map<std::string, bool> removed_;
};

}  // namespace ckpt::coordinator
