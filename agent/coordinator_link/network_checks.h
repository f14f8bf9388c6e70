// SPDX-License-Identifier: Apache-2.0
// Answers the coordinator's ListenForCheck and ReachNode. Before a move changes anything at its target, the
// mover of the source's GPU connects a lane to the target's mover. The lane uses the network of the move.
// Threads: the event loop. Ownership: the object refers to the agent's parts, which must outlive it. Each
// check stops automatically after kCheckLife. Errors: they are sent to the coordinator.
#pragma once

#include <memory>

#include "agent/coordinator_link/coordinator_link.h"
#include "agent/migration/modes/migration_context.h"
#include "agent/mover_client/mover_session.h"

namespace ckpt::agent {

class NetworkChecks {
 public:
  // Registers its frame handlers with `link`, which must not have been started.
  NetworkChecks(CoordinatorLink& link, MigrationContext& context);
  NetworkChecks(const NetworkChecks&) = delete;
  NetworkChecks& operator=(const NetworkChecks&) = delete;

 private:
  struct Check;
  template <class M>
  void answer_with(const char* what, Task<> (NetworkChecks::*answer)(M));
  static Task<> wait_for_peer(Check& check);
  Task<> listen(wire::ListenForCheck request);
  Task<> reach(wire::ReachNode request);
  Task<Result<std::string>> begin_listening(Check& check, wire::ListenForCheck request);
  Task<Result<std::int64_t>> connect(Check& check, wire::ReachNode request);
  // Opens a session without memory on the GPU's mover.
  template <class M>
  Task<Result<void>> open(Check& check, wire::Side side, M request);

  CoordinatorLink& link_;
  MigrationContext& context_;
  std::uint64_t checks_ = 0;
};

}  // namespace ckpt::agent
