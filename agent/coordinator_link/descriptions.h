// SPDX-License-Identifier: Apache-2.0
// This node's reports to a coordinator whose store was lost or is an older copy. They describe how a job was
// started, and the parties of a handover.
// Threads: the event loop. Ownership: the object refers to the agent's parts, which must outlive it. Errors:
// kNotFound for a job that is not on this node.
#pragma once

#include <span>

#include "agent/coordinator_link/coordinator_link.h"
#include "agent/jobs/job_table.h"
#include "agent/migration/move_protocol.h"

namespace ckpt::agent {

class Descriptions {
 public:
  // Registers its frame handlers with `link`, which must not have been started.
  Descriptions(CoordinatorLink& link, const JobTable& jobs, const MoveProtocols& protocols);
  Descriptions(const Descriptions&) = delete;
  Descriptions& operator=(const Descriptions&) = delete;

  // Fills in the facts that a coordinator may have lost: open handovers and the newest ids.
  void introduce(wire::AgentHello& hello) const;

 private:
  Result<void> describe_job(std::span<const std::byte> body);
  Result<void> describe_handover(std::span<const std::byte> body);
  [[nodiscard]] Result<wire::HandoverFacts> facts_of(const wire::DescribeHandover& request) const;

  CoordinatorLink& link_;
  const JobTable& jobs_;
  const MoveProtocols& protocols_;
};

}  // namespace ckpt::agent
