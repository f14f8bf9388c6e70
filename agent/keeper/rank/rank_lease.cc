// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/rank_lease.h"

#include <signal.h>

#include "agent/keeper/rank/adopted_process.h"

namespace ckpt::keeper {
namespace {

constexpr Nanos kStopCheckNs = 1'000'000;
constexpr Nanos kStoppedCheckNs = 50'000'000;

}  // namespace

void RankLease::set_deadline(Nanos deadline_ns, bool may_continue) {
  deadline_ns_ = deadline_ns;
  if (parts_.state.phase == local::Phase::kExited) return;
  if (deadline_ns != local::kNoDeadline && deadline_ns <= now_ns()) return end();
  if (deadline_ns == local::kNoDeadline) {
    parts_.timer.clear();
  } else {
    parts_.timer.set(deadline_ns);
  }
  if (!is_over_) return;
  is_over_ = false;
  parts_.page.set_gate(false);
  if (parts_.is_transparent) parts_.rank.send({0, 0, local::RankContinued{now_ns()}});
  if (may_continue) parts_.hold.go_on();
  if (!stop_reported_) return;
  stop_reported_ = false;
  parts_.agent.answer(0, local::RankContinued{now_ns()});
}

void RankLease::on_timer() {
  if (parts_.timer.take_due()) end();
}

void RankLease::end() {
  if (parts_.state.phase == local::Phase::kExited) return;
  if (!is_over_) {
    is_over_ = true;
    parts_.page.set_gate(true);
    if (parts_.is_transparent) parts_.rank.send({0, 0, local::RankStopped{now_ns()}});
    parts_.stops.note(parts_.process);
    parts_.process.signal_group(SIGSTOP);
  }
  look_whether_stopped();
}

void RankLease::on_stopped() {
  if (is_over_) look_whether_stopped();
}

void RankLease::on_continued() {
  if (!is_over_) return;
  stop_reported_ = false;  // another process's SIGCONT does not bring a lease back
  parts_.process.signal_group(SIGSTOP);
}

void RankLease::stop_what_runs() const {
  parts_.process.signal_group(SIGSTOP);
  for (const pid_t pid : tree_of(parts_.process.pid())) {
    if (!is_stopped(pid)) ::kill(pid, SIGSTOP);
  }
}

void RankLease::look_whether_stopped() {
  const bool stopped = is_stopped(parts_.process.pid());
  if (!stopped) stop_what_runs();
  if (stopped && !stop_reported_) parts_.agent.answer(0, local::RankStopped{now_ns()});
  stop_reported_ = stopped;
  parts_.timer.set(now_ns() + (stopped ? kStoppedCheckNs : kStopCheckNs));
}

}  // namespace ckpt::keeper
