// SPDX-License-Identifier: Apache-2.0
// Closing and opening the gate: for a pause, and while the rank's lease has expired.
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/base/program_fd.h"
#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/rank/rank_session.h"

namespace ckpt::shim {
namespace {

constexpr std::int64_t kDefaultPauseMs = 10'000;
constexpr Nanos kLeaseCloseNs = 60'000 * kNanosPerMs;

// Returns the time for which a pause waits for the calls inside the gate and the work on the GPU:
// GPUMIGRATE_PAUSE_TIMEOUT_MS.
Nanos pause_timeout() {
  const char* text = std::getenv("GPUMIGRATE_PAUSE_TIMEOUT_MS");
  const long long ms = text != nullptr ? std::strtoll(text, nullptr, 10) : 0;
  return (ms > 0 ? ms : kDefaultPauseMs) * kNanosPerMs;
}

}  // namespace

Result<void> RankSession::begin_pause(std::uint64_t request) {
  pause_request_ = request;
  pause_asked_ns_ = now_ns();
  if (state_ != State::kRunning)
    return ok();  // the gate is already being closed, for a withdrawn pause or for the lease
  if (std::exchange(lease_closed_, false)) gate().open();
  return close_gate(true);
}

// Ends a pause. It also handles the withdrawal of a pause, which has incarnation 0 and applies to that pause
// only.
Result<void> RankSession::end_pause(const local::Resume& resume, std::uint64_t request) {
  const bool withdrawn = resume.incarnation == 0;
  if (withdrawn && request != pause_request_) return ok();
  if (!withdrawn && state_ != State::kPaused) return ok();
  pause_request_ = 0;
  if (state_ == State::kClosing) return ok();  // gate_closed() opens the gate again
  order_ = withdrawn ? std::nullopt : std::optional(ResumeOrder{request, resume.incarnation});
  if (state_ == State::kDraining || state_ == State::kPaused) {
    state_ = State::kRunning;
    lease_closed_ = true;
  }
  return lease_over_ ? ok() : send_running();
}

Result<void> RankSession::lease_ended() {
  lease_over_ = true;
  if (state_ != State::kRunning || lease_closed_) return ok();
  return close_gate(false);
}

Result<void> RankSession::lease_came_back() {
  lease_over_ = false;
  return state_ == State::kRunning ? send_running() : ok();
}

// Opens the gate of a running rank if the lease has closed it, and answers the order to resume.
Result<void> RankSession::send_running() {
  if (std::exchange(lease_closed_, false)) gate().open();
  const std::optional<ResumeOrder> order = std::exchange(order_, std::nullopt);
  if (!order) return ok();
  return send(order->request, local::Running{order->incarnation, now_ns(), 1, 0});
}

Result<void> RankSession::close_gate(bool for_pause) {
  closing_.for_pause = for_pause;
  closing_.done = move_beyond_program(UniqueFd(::eventfd(0, EFD_CLOEXEC)));
  if (!closing_.done) return Error::from_errno("eventfd");
  state_ = State::kClosing;
  const auto close = [this, for_pause] {
    ::pthread_setname_np(::pthread_self(), "gpumigrate-gate");
    closing_.result = for_pause ? quiesce(pause_timeout()) : gate().close(kLeaseCloseNs);
    closing_.quiesced_ns = now_ns();
    const std::uint64_t one = 1;
    (void)!::write(closing_.done.get(), &one, sizeof one);
  };
  try {
    closing_.thread = std::thread(close);  // inherits the service thread's signal mask, which blocks all
                                           // signals
  } catch (const std::system_error& error) {
    closing_.done.reset();
    state_ = State::kRunning;
    const Error reason(ErrorCode::kIo, std::string("Cannot start a thread: ") + error.what());
    const std::uint64_t request = std::exchange(pause_request_, 0);
    return for_pause ? refuse(request, local::MessageType::kPause, reason) : ok();
  }
  return ok();
}

// Handles the end of the closing thread: the gate is closed, or there is an error and the gate is open.
Result<void> RankSession::gate_closed() {
  closing_.thread.join();
  closing_.done.reset();
  state_ = State::kRunning;
  const Result<void> result = std::exchange(closing_.result, ok());
  if (!result.has_value()) {
    const std::uint64_t request = closing_.for_pause ? std::exchange(pause_request_, 0) : 0;
    if (request != 0) {
      CKPT_TRYV(refuse(request, local::MessageType::kPause, result.error()));
    }
    if (pause_request_ != 0) return close_gate(true);
    return lease_over_ ? close_gate(false) : send_running();
  }
  if (pause_request_ != 0 && closing_.for_pause) {
    state_ = State::kDraining;
    return send_paused_if_drained();
  }
  if (pause_request_ != 0) {
    gate().open();  // the gate was closed for the lease only: the work on the GPU has not been waited for
    return close_gate(true);
  }
  lease_closed_ = true;
  return lease_over_ ? ok() : send_running();
}

// Sends Paused once the mover knows every region: Paused means that nothing changes any more.
Result<void> RankSession::send_paused_if_drained() {
  if (state_ != State::kDraining || (exports_.active() && !exports_.drained())) return ok();
  state_ = State::kPaused;
  // The gate may have been closed for a former pause, which was withdrawn.
  const Nanos entered = std::min(pause_asked_ns_, closing_.quiesced_ns);
  return send(pause_request_, local::Paused{entered, closing_.quiesced_ns, 0});
}

}  // namespace ckpt::shim
