// SPDX-License-Identifier: Apache-2.0
// Answers requests in place of an adopted process. Such a process runs without our library, so it has no
// session with its keeper. The agent stops, saves and restores the process
// (agent/migration/modes/adopted_mode.h). The keeper stores the phase.
// Threads: one. Ownership: none. The constructor's arguments outlive the object. Errors: answered as Failed.
#pragma once

#include <cstdint>

#include "agent/keeper/io/agent_port.h"
#include "agent/keeper/rank/rank_lease.h"
#include "agent/keeper/rank/rank_process.h"
#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/rank/thread_hold.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class AdoptedRank {
 public:
  struct Parts {
    RankState& state;
    const RankProcess& process;
    ThreadHold& hold;
    RankLease& lease;
    AgentPort& agent;
  };
  explicit AdoptedRank(Parts parts) : parts_(parts) {}

  // Handles a request. Returns false if the request is not special to an adopted process.
  bool handle(const local::Received& received);

 private:
  void pause(std::uint64_t request);
  void prepare_dump(std::uint64_t request);
  void reattach(std::uint64_t request, const local::Reattach& how);
  void resume(std::uint64_t request, const local::Resume& resume);
  void refuse(std::uint64_t request, local::MessageType type);

  Parts parts_;
};

}  // namespace ckpt::keeper
