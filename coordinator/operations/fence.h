// SPDX-License-Identifier: Apache-2.0
// Ends instances that live although their job continues from an image, or rests in one (Job::fenced): there
// are never two.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: none; an
// order that cannot be sent now is sent at the node's next inventory.
#pragma once

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {

class Fence {
 public:
  Fence(NodeCalls& calls, JobTable& jobs) : calls_(calls), jobs_(jobs) {}

  void on_inventory(const Node& node);
  void on_instance(const Node& node, const wire::JobInstance& instance);

 private:
  NodeCalls& calls_;
  JobTable& jobs_;
};

}  // namespace ckpt::coordinator
