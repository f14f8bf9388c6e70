// SPDX-License-Identifier: Apache-2.0
// The lease of a rank (SW-11). At the deadline the gate of the control page is closed and the rank is
// stopped, whether or not an agent is attached. A later deadline restores the lease. A stop may get lost or
// be undone, and may not reach processes outside the job's process group. Therefore all processes of the job
// are checked repeatedly while the job has no lease, and running ones are stopped. Processes that the job had
// stopped itself stay stopped afterwards.
// Threads: one. Ownership: the timer. The constructor's arguments outlive the object. Errors: none.
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
    bool is_transparent = false;  // true: the rank also receives the messages RankStopped and RankContinued
  };
  explicit RankLease(Parts parts) : parts_(std::move(parts)) {}

  // Sets the deadline on CLOCK_BOOTTIME. local::kNoDeadline means no deadline. With `may_continue`, a rank
  // that was stopped by the expiry of its lease continues. Otherwise the rank stays stopped although it has a
  // lease again.
  void set_deadline(Nanos deadline_ns, bool may_continue);
  [[nodiscard]] Nanos deadline() const { return deadline_ns_; }
  [[nodiscard]] bool is_over() const { return is_over_; }
  [[nodiscard]] bool is_stop_reported() const { return stop_reported_; }

  [[nodiscard]] int fd() const { return parts_.timer.fd(); }
  void on_timer();
  // Handles the kernel's report that a child was stopped. on_continued() handles the report that a child
  // continues.
  void on_stopped();
  void on_continued();
  void on_exited() { parts_.timer.clear(); }

 private:
  void end();
  void report_stopped();
  void check_stopped();

  Parts parts_;
  Nanos deadline_ns_ = local::kNoDeadline;
  bool is_over_ = false;
  bool stop_reported_ = false;  // true if the agent was notified that the missing lease has stopped the rank
};

}  // namespace ckpt::keeper
