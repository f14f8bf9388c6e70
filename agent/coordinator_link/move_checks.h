// SPDX-License-Identifier: Apache-2.0
// Answers the coordinator's CheckMove and CheckTarget. A dry run asks a job's node, and the node that the job
// would go to, what a move would ask first.
// Threads: the event loop. Ownership: refers to the agent's parts, which must outlive it.
#pragma once

#include "agent/coordinator_link/coordinator_link.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

class MoveChecks {
 public:
  // Takes its frames from `link`, which must not have been started.
  MoveChecks(CoordinatorLink& link, MigrationContext& context);
  MoveChecks(const MoveChecks&) = delete;
  MoveChecks& operator=(const MoveChecks&) = delete;

 private:
  Task<> answer(wire::CheckMove request);
  Task<> answer(wire::CheckTarget request);

  CoordinatorLink& link_;
  MigrationContext& context_;
};

}  // namespace ckpt::agent
