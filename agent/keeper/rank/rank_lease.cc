// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/rank_lease.h"

#include <signal.h>

#include "agent/keeper/rank/descent.h"

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
  if (parts_.timer.consume_expiry()) end();
}

void RankLease::end() {
  const local::Phase phase = parts_.state.phase;
  if (phase == local::Phase::kExited) return;
  if (!is_over_) {
    is_over_ = true;
    parts_.page.set_gate(true);
    if (parts_.is_transparent) parts_.rank.send({0, 0, local::RankStopped{now_ns()}});
    // A dump leaves all processes stopped, and a hold leaves other processes stopped. Only stops by the
    // program itself are recorded.
    parts_.process.stop_all(phase != local::Phase::kDumped && !parts_.hold.is_held());
    // The check starts after a delay, because the order that set the deadline is answered before the stop is
    // reported.
    parts_.timer.set(now_ns() + kStopCheckNs);
    return;
  }
  check_stopped();
}

void RankLease::report_stopped() {
  if (!is_over_ || stop_reported_) return;
  stop_reported_ = true;
  parts_.agent.answer(0, local::RankStopped{now_ns()});
}

void RankLease::on_stopped() {
  if (is_over_) check_stopped();
}

void RankLease::on_continued() {
  if (!is_over_) return;
  stop_reported_ = false;  // a SIGCONT of another process does not restore the lease
  check_stopped();
}

// Checks whether the job is stopped. A SIGCONT of another process may continue a process that is not a child
// of this keeper. Therefore the keeper repeats the stop as long as the job has no lease.
void RankLease::check_stopped() {
  const bool stopped = stand_still(parts_.process.members());
  if (!stopped) parts_.process.stop_all(false);
  if (stopped) report_stopped();
  parts_.timer.set(now_ns() + (stopped ? kStoppedCheckNs : kStopCheckNs));
}

}  // namespace ckpt::keeper
