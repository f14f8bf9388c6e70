// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a gang over several nodes meet. MASTER_ADDR is an address of rank 0's node. MASTER_PORT is the port
// that its agent found free when it started rank 0. Variables that the user gave stay. On one node the agent does
// all of this.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it.
#pragma once

#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {

class GangRendezvous {
 public:
  struct Dependencies {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
  };
  explicit GangRendezvous(Dependencies deps) : deps_(deps) {}

  // The ranks can meet there. kRefused where the other nodes cannot reach the address of the first one's.
  [[nodiscard]] Result<void> check(const wire::JobSpec& spec, const std::vector<Place>& places) const;
  // Adds to a rank's specification the address where ranks meet, and the port unless rank 0 is to find it.
  // kNotFound or kUnavailable until rank 0 has been started, and while its node is away.
  control::Task<Result<wire::JobSpec>> complete(wire::JobSpec spec) const;

 private:
  // The port of rank 0; 0 if rank 0 itself `starts`, and its node is to find one.
  control::Task<Result<std::uint32_t>> port_of(JobId first, bool starts) const;
  Result<void> add_address(wire::JobSpec& spec, const std::vector<Place>& places) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
