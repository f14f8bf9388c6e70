// SPDX-License-Identifier: Apache-2.0
// Pauses and resumes the rank, and records whether the rank runs and as which incarnation.
// Threads: one. Ownership: none. The constructor's arguments outlive the object. Errors: answered as Failed.
#pragma once

#include <cstdint>
#include <string>

#include "agent/keeper/io/agent_port.h"
#include "agent/keeper/io/rank_link.h"
#include "agent/keeper/memory/memory_exchange.h"
#include "agent/keeper/rank/rank_lease.h"
#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/rank/thread_hold.h"
#include "libckpt/inprocess/local/barrier_count.h"
#include "libckpt/inprocess/local/control_page.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class Execution {
 public:
  struct Parts {
    RankState& state;
    local::ControlPageMapping& page;
    RankLink& rank;
    AgentPort& agent;
    RankLease& lease;
    ThreadHold& hold;
    MemoryExchange& memory;
    const local::BarrierCount* barriers;  // the rank's barrier count; null if the rank counts no barriers
    bool is_transparent = false;
  };
  explicit Execution(Parts parts) : parts_(parts) {}

  // ---- from the agent ----
  void pause(std::uint64_t request, const local::Pause& order);
  // Stops a gang's rank, which then waits at the barrier (GANG-1). An older or abandoned attempt is refused
  // (GANG-2).
  void stop_at(std::uint64_t request, const local::StopAt& order);
  void resume(local::Received received);
  // Lets a standby take over its state and wait behind its gate. The next resume() opens the gate.
  void enter_gate(local::Received received);
  // Withdraws a pause that has not begun. A pause in effect stays, because the next agent knows whether
  // BARRIER is recorded.
  void on_agent_gone();

  // ---- from the rank ----
  void on_paused(local::Received received);
  void on_in_gate(const local::Message& message);
  void on_running(const local::Message& message);
  void on_failed(const local::Message& message);
  // Fails the rank's unanswered requests.
  void on_rank_gone(const std::string& reason);

  // Checks whether the rank may continue. A dumped rank stays stopped, even with a lease, until it is called
  // back.
  [[nodiscard]] bool may_continue() const;
  // Checks whether the rank could not continue with the state that it received.
  [[nodiscard]] bool has_misfit() const { return has_misfit_; }

 private:
  void withdraw_pause();
  // Continues a rank that waits for the other ranks.
  void lift_stop();
  [[nodiscard]] std::string why_not_paused() const;
  void set_deadline(Nanos deadline_ns) { parts_.lease.set_deadline(deadline_ns, may_continue()); }

  Parts parts_;
  std::uint64_t pause_request_ = 0;
  std::uint64_t stop_at_ = 0;
  std::uint64_t attempt_ = 0;     // the highest attempt that the rank knows
  bool is_attempt_over_ = false;  // true if further orders of attempt_ are refused
  std::uint64_t resume_request_ = 0;
  std::uint64_t resumes_as_ = 0;  // incarnation that the rank resumes as; used in phase kResuming
  bool is_gate_held_ = false;     // true if enter_gate() holds the gate; used in phase kResuming
  bool is_in_gate_ = false;       // true if the rank waits behind its gate
  bool has_misfit_ = false;
};

}  // namespace ckpt::keeper
