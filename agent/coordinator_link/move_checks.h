// SPDX-License-Identifier: Apache-2.0
// Answers the coordinator's CheckMove and CheckTarget. For a dry run, the coordinator queries the job's node
// and the target node. The agents make the checks that a move would make first.
// Threads: the event loop. Ownership: the object refers to the agent's parts, which must outlive it.
#pragma once

#include "agent/coordinator_link/coordinator_link.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

class MoveChecks {
 public:
  // Registers its frame handlers with `link`, which must not have been started.
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
