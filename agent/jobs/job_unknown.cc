// SPDX-License-Identifier: Apache-2.0
// Instances whose keeper does not answer. The keeper may be stopped, swapped out or blocked while its rank
// runs. The agent queries the keeper until the state is known, or the keeper is proven to have exited.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/host_process/processes/process_tree.h"
#include "agent/jobs/job.h"
#include "agent/jobs/keeper_process.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

using std::chrono::steady_clock;

// The pauses between queries. A keeper that exits closes its socket shortly before the exit is visible.
constexpr Milliseconds kFirstRest{20};
constexpr Milliseconds kMaxRest{2000};
// The maximum pause between queries. Unanswered queries wait in the socket, and a keeper that sleeps for a
// month must not find a thousand of them.
constexpr Milliseconds kMaxQuestion = std::chrono::hours(1);

}  // namespace

Task<> Job::sleep_for(Milliseconds time) {
  auto self = shared_from_this();
  AsyncEvent nobody(environment_.executor);
  co_await nobody.wait(steady_clock::now() + time);
}

Task<> Job::known(steady_clock::time_point deadline) {
  auto self = shared_from_this();
  if (!unknown_) co_return;
  AsyncEvent signal(environment_.executor);
  add_waiter(&signal);
  while (unknown_ && steady_clock::now() < deadline) co_await signal.wait(deadline);
  remove_waiter(&signal);
}

bool Job::accept_written_end() {
  const auto status = read_keeper_status(folder_);
  if (!status || !status->exited) return false;
  if (status->ran) ran_as(status->incarnation);
  on_exited(status->wait_status, status->ended_by_keeper);
  return true;
}

void Job::on_keeper_gone(const Error& error) {
  keeper_.reset();
  if (!announced_) return;  // start() determines the reason
  if (record_.ended) return changed();
  if (unknown_) return;  // ask_until_known() determines the state
  // A closed connection proves nothing, because a keeper may drop a connection that it does not understand.
  if (!accept_proven_end(error)) become_unknown(error);
}

bool Job::accept_proven_end(const Error& error) {
  if (accept_written_end()) return true;
  // The keeper is alive while its end of the connection is open.
  if ((keeper_ && keeper_->is_open()) || keeper_may_live(folder_)) return false;
  // The keeper may have recorded the rank's exit between the two checks.
  if (!accept_written_end()) end_without_word(error);
  return true;
}

void Job::end_without_word(const Error& error) {
  // An adopted process is killed with its keeper only if it is stopped for a move.
  const bool held = phase_ == local::Phase::kPaused || phase_ == local::Phase::kDumped;
  if (held) end_adopted();
  unknown_ = false;
  phase_ = local::Phase::kExited;
  record_.ended = true;
  record_.moved = leaving_;
  record_.exit_code = 128 + SIGKILL;  // the exit of a keeper also kills its ranks
  end_reason_ = "its keeper has exited (" + error.to_string() + ")";
  spdlog::error("keeper lost: job {} incarnation {} reason {}", wire::job_text(id()), record_.incarnation,
                error.to_string());
  local::RankExited exited;
  exited.wait_status = SIGKILL;
  tell_listeners(local::Body(exited));
  save_soon();
  changed();
}

void Job::end_adopted() const {
  const wire::JobSpec& spec = record_.spec;
  const bool taken_in = spec.mode == MigrationMode::kAdopted && record_.migration == 0;
  if (taken_in && host::is_process(spec.adopt_pid, spec.adopt_start_ticks)) host::kill_source(spec.adopt_pid);
}

void Job::become_unknown(const Error& error) {
  unknown_ = true;
  unknown_reason_ = error.to_string();
  control::spawn(environment_.executor, "silent keeper", ask_until_known());
}

// Queries the keeper once. The function uses the same connection as long as it is open. A connection that the
// keeper does not accept fills its listener's queue.
Task<Result<void>> Job::ask_once(Milliseconds timeout) {
  auto self = shared_from_this();
  if (keeper_ && !keeper_->is_open()) keeper_.reset();
  if (!keeper_) {
    CKPT_CO_TRYV(connect());
  }
  co_return co_await attach(timeout);
}

Task<> Job::ask_until_known() {
  auto self = shared_from_this();
  bool told = false;
  Milliseconds question = environment_.config.keeper_timeout;
  for (Milliseconds pause = kFirstRest; unknown_; pause = std::min(pause * 2, kMaxRest)) {
    co_await sleep_for(pause);
    if (!unknown_) break;
    if (accept_proven_end(Error(ErrorCode::kUnavailable, unknown_reason_))) break;
    if (!std::exchange(told, true)) {
      spdlog::error("keeper does not answer: job {} incarnation {} folder {} reason {}", wire::job_text(id()),
                    record_.incarnation, folder_, unknown_reason_);
      changed();
    }
    auto answered = co_await ask_once(question);
    if (answered) break;
    unknown_reason_ = answered.error().to_string();
    if (answered.error().code() == ErrorCode::kTimedOut) question = std::min(question * 2, kMaxQuestion);
  }
  if (ended()) co_return;
  spdlog::info("keeper answers again: job {} incarnation {} phase {}", wire::job_text(id()),
               record_.incarnation, local::to_string(phase_));
  changed();
  environment_.owner.known_again(self);
}

Task<> Job::stop_unknown(Milliseconds grace) {
  auto self = shared_from_this();
  stopping_unknown_ = true;
  AsyncEvent signal(environment_.executor);
  add_waiter(&signal);
  const auto until = steady_clock::now() + grace;
  bool in_time = true;
  while (unknown_ && in_time) in_time = co_await signal.wait(until);
  remove_waiter(&signal);
  stopping_unknown_ = false;
  if (ended()) co_return;
  if (!unknown_) {
    if (auto stopped = co_await stop(grace); !stopped)
      spdlog::error("job not stopped: job {} reason {}", wire::job_text(id()), stopped.error().to_string());
    co_return;
  }
  spdlog::warn("keeper does not answer and is killed, because the job must be stopped: job {} incarnation {}",
               wire::job_text(id()), record_.incarnation);
  kill_keeper(folder_);
  end_adopted();
}

// Sends kills until the keeper is proven to have exited. Even a kill does not terminate a process that hangs
// in the kernel.
Task<> Job::kill_until_proven() {
  auto self = shared_from_this();
  const auto until = steady_clock::now() + environment_.config.keeper_timeout;
  for (Milliseconds pause = kFirstRest; !ended() && keeper_may_live(folder_);
       pause = std::min(pause * 2, kMaxRest)) {
    if (steady_clock::now() >= until) {
      if (!unknown_) become_unknown(Error(ErrorCode::kTimedOut, "The keeper was killed but has not exited"));
      co_return;
    }
    kill_keeper(folder_);
    co_await sleep_for(pause);
  }
  unknown_ = false;
}

}  // namespace ckpt::agent
