// SPDX-License-Identifier: Apache-2.0
// The rendezvous of the ranks of a job over several nodes. MASTER_ADDR is an address of rank 0's node.
// MASTER_PORT is the port that the node's agent found free when it started rank 0. Variables that the user
// set are preserved. On one node the agent sets both variables.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it.
#pragma once

#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/fleet/whole_job.h"

namespace ckpt::coordinator {

class GangRendezvous {
 public:
  struct Dependencies {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
  };
  explicit GangRendezvous(Dependencies deps) : deps_(deps) {}

  // Checks whether the ranks can connect to each other. Returns kRefused if other nodes cannot reach the
  // address of the first rank's node.
  [[nodiscard]] Result<void> check(const wire::JobSpec& spec, const std::vector<Place>& places) const;
  // Adds the rendezvous address to a rank's specification. Also adds the port, unless rank 0 must find it.
  // Returns kNotFound or kUnavailable until rank 0 has been started, and while its node is disconnected. The
  // only rank of a job gets neither.
  control::Task<Result<wire::JobSpec>> complete(wire::JobSpec spec) const;

 private:
  // Returns the port of rank 0. Returns 0 if rank 0 itself `starts`, so that its node must find a port.
  control::Task<Result<std::uint32_t>> port_of(JobId first, bool starts) const;
  Result<void> add_address(wire::JobSpec& spec, const std::vector<Place>& places) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
