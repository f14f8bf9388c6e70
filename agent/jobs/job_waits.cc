// SPDX-License-Identifier: Apache-2.0
// Waits for states of an instance. Each wait has a deadline.
#include <chrono>

#include "agent/jobs/job.h"
#include "agent/jobs/log_end.h"

namespace ckpt::agent {

Task<Result<void>> Job::standby_ready(Milliseconds timeout) {
  auto self = shared_from_this();
  AsyncEvent signal(environment_.executor);
  add_waiter(&signal);
  const auto until = std::chrono::steady_clock::now() + timeout;
  bool in_time = true;
  while (in_time && !ended() && phase_ != local::Phase::kStandbyReady) in_time = co_await signal.wait(until);
  remove_waiter(&signal);
  if (phase_ == local::Phase::kStandbyReady && !ended()) co_return ok();
  if (ended()) {
    co_return Error(ErrorCode::kRefused, "The standby could not start: " + end_reason() +
                                             "; its last output: " + quoted_log_end(log_path()));
  }
  co_return Error(ErrorCode::kTimedOut, "The standby did not reach ckpt_ready within " +
                                            std::to_string(timeout.count()) +
                                            " ms; its last output: " + quoted_log_end(log_path()));
}

Task<> Job::described(std::chrono::steady_clock::time_point deadline) {
  auto self = shared_from_this();
  AsyncEvent signal(environment_.executor);
  add_waiter(&signal);
  bool in_time = true;
  while (in_time && !ended() && summary_.ready == 0) in_time = co_await signal.wait(deadline);
  remove_waiter(&signal);
}

Task<bool> Job::wait_for_end(Milliseconds timeout) {
  auto self = shared_from_this();
  AsyncEvent signal(environment_.executor);
  add_waiter(&signal);
  const auto until = std::chrono::steady_clock::now() + timeout;
  bool in_time = true;
  while (in_time && !ended()) in_time = co_await signal.wait(until);
  remove_waiter(&signal);
  co_return ended();
}

}  // namespace ckpt::agent
