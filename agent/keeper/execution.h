// SPDX-License-Identifier: Apache-2.0
// Pauses and resumes the rank, and knows whether it runs and as which incarnation.
// Threads: one. Ownership: nothing; arguments at construction outlive it. Errors: answered as Failed.
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
    const local::BarrierCount* barriers;  // null: it counts none
    bool is_transparent = false;
  };
  explicit Execution(Parts parts) : parts_(parts) {}

  // ---- from the agent ----
  void pause(std::uint64_t request, const local::Pause& order);
  // Stops a gang's rank, which then waits at that barrier (GANG-1). An older attempt, or one that was given
  // up, is refused (GANG-2).
  void stop_at(std::uint64_t request, const local::StopAt& order);
  void resume(local::Received received);
  // A standby takes its state over and waits behind its gate, which the next resume() opens.
  void enter_gate(local::Received received);
  // Withdraws a pause that has not begun. A pause that holds stays: the next agent knows whether BARRIER is
  // recorded.
  void on_agent_gone();

  // ---- from the rank ----
  void on_paused(local::Received received);
  void on_in_gate(const local::Message& message);
  void on_running(const local::Message& message);
  void on_failed(const local::Message& message);
  // Its unanswered requests fail.
  void on_rank_gone(const std::string& why);

  // A dumped rank stays stopped, also with a lease, until it is called back.
  [[nodiscard]] bool may_continue() const;
  // Called when the rank could not go on with the state that it was given.
  [[nodiscard]] bool has_misfit() const { return has_misfit_; }

 private:
  void withdraw_pause();
  // Lets a rank go on that waits for the others.
  void lift_stop();
  [[nodiscard]] std::string why_not_paused() const;
  void set_deadline(Nanos deadline_ns) { parts_.lease.set_deadline(deadline_ns, may_continue()); }

  Parts parts_;
  std::uint64_t pause_request_ = 0;
  std::uint64_t stop_at_ = 0;
  std::uint64_t attempt_ = 0;     // the highest attempt that it knows
  bool is_attempt_over_ = false;  // that attempt is over
  std::uint64_t resume_request_ = 0;
  std::uint64_t resumes_as_ = 0;  // in phase kResuming
  bool is_gate_held_ = false;     // in phase kResuming: for enter_gate()
  bool is_in_gate_ = false;       // the rank waits there
  bool has_misfit_ = false;
};

}  // namespace ckpt::keeper
