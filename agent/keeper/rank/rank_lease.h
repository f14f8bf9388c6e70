// SPDX-License-Identifier: Apache-2.0
// The lease of a rank (SW-11). At its deadline the gate of the control page is closed and the rank stopped,
// whether an agent is attached or not. A later deadline gives the lease back. A stop may get lost or be
// undone, and it may not reach what has left the job's process group. So all of the job is looked at again
// and again for as long as it has no lease, and what runs is stopped. What the job had stopped itself stays
// so afterwards.
// Threads: one. Ownership: the timer; arguments at construction outlive it. Errors: none.
#pragma once

#include "agent/keeper/io/agent_port.h"
#include "agent/keeper/io/rank_link.h"
#include "agent/keeper/io/timer.h"
#include "agent/keeper/rank/rank_process.h"
#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/rank/thread_hold.h"
#include "libckpt/inprocess/local/control_page.h"

namespace ckpt::keeper {

class RankLease {
 public:
  struct Parts {
    Timer timer;
    local::ControlPageMapping& page;
    RankProcess& process;
    ThreadHold& hold;
    const RankState& state;
    RankLink& rank;
    AgentPort& agent;
    bool is_transparent = false;  // then the rank gets a message, too
  };
  explicit RankLease(Parts parts) : parts_(std::move(parts)) {}

  // CLOCK_BOOTTIME, local::kNoDeadline: for ever. `may_continue`: a rank that was stopped by the end of its
  // lease goes on; else it stays stopped although it has a lease again.
  void set_deadline(Nanos deadline_ns, bool may_continue);
  [[nodiscard]] Nanos deadline() const { return deadline_ns_; }
  [[nodiscard]] bool is_over() const { return is_over_; }
  [[nodiscard]] bool is_stop_reported() const { return stop_reported_; }

  [[nodiscard]] int fd() const { return parts_.timer.fd(); }
  void on_timer();
  // The kernel's reports of a child.
  void on_stopped();
  void on_continued();
  void on_exited() { parts_.timer.clear(); }

 private:
  void end();
  void report_stopped();
  void look_whether_stopped();

  Parts parts_;
  Nanos deadline_ns_ = local::kNoDeadline;
  bool is_over_ = false;
  bool stop_reported_ = false;  // the agent knows that the rank is stopped because of it
};

}  // namespace ckpt::keeper
