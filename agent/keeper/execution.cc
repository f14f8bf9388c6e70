// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/execution.h"

#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {

using local::MessageType;
using local::Phase;

std::string Execution::why_not_paused() const {
  switch (parts_.state.phase) {
    case Phase::kPausing:
    case Phase::kPaused:
      return "The job is paused already";
    case Phase::kExited:
      return "The program has exited";
    default:
      return "The program has not called ckpt_ready, or has ended its session (phase " +
             std::string(to_string(parts_.state.phase)) + ")";
  }
}

void Execution::stop_at(std::uint64_t request, const local::StopAt& order) {
  const auto refuse = [&](const std::string& reason) {
    parts_.agent.refuse(request, MessageType::kStopAt, ErrorCode::kRefused, reason);
  };
  if (order.attempt < attempt_ || (order.attempt == attempt_ && is_attempt_over_))
    return refuse("The attempt to stop the ranks at this barrier has already ended");
  attempt_ = order.attempt;
  is_attempt_over_ = order.barrier == 0;
  if (order.barrier == 0) {
    lift_stop();
    return parts_.agent.answer(request, local::Counted{});
  }
  if (parts_.barriers == nullptr) return refuse("Barriers are counted only for a job of several ranks");
  if (parts_.state.phase != Phase::kRunning || !parts_.rank.is_open()) return refuse(why_not_paused());
  if (order.barrier > stop_at_) {
    stop_at_ = order.barrier;
    parts_.page.set_stop_at(stop_at_);
  }
  parts_.agent.answer(request, local::Counted{stop_at_, parts_.barriers->read()});
}

void Execution::lift_stop() {
  is_attempt_over_ = true;
  if (std::exchange(stop_at_, 0) != 0) parts_.page.set_stop_at(0);
}

void Execution::pause(std::uint64_t request, const local::Pause& order) {
  if (parts_.state.phase != Phase::kRunning || !parts_.rank.is_open())
    return parts_.agent.refuse(request, MessageType::kPause, ErrorCode::kRefused, why_not_paused());
  if (const std::string reason = parts_.rank.why_not_movable(); !reason.empty())
    return parts_.agent.refuse(request, MessageType::kPause, ErrorCode::kRefused, reason);
  if (order.at_barrier != stop_at_)
    return parts_.agent.refuse(request, MessageType::kPause, ErrorCode::kRefused,
                               "The rank must stop at barrier " + std::to_string(stop_at_) + ", not at " +
                                   std::to_string(order.at_barrier));
  parts_.state.phase = Phase::kPausing;
  pause_request_ = request;
  parts_.page.ask_pause(request, order.at_barrier);
  if (parts_.is_transparent) parts_.rank.send({0, request, local::Pause{}});
}

// Withdraws the pause. The rank may already be entering the pause. If the rank still sends Paused, the keeper
// orders it to continue.
void Execution::withdraw_pause() {
  parts_.page.withdraw_pause();
  if (parts_.is_transparent) parts_.rank.send({0, pause_request_, local::Resume{0, parts_.lease.deadline()}});
  pause_request_ = 0;
  if (parts_.state.phase == Phase::kPausing) parts_.state.phase = Phase::kRunning;
}

void Execution::on_agent_gone() {
  if (parts_.state.phase == Phase::kPausing) withdraw_pause();
  if (parts_.state.phase == Phase::kRunning) lift_stop();
}

bool Execution::may_continue() const {
  return parts_.state.phase != Phase::kDumped || parts_.memory.is_called_back();
}

void Execution::enter_gate(local::Received received) {
  const std::uint64_t request = received.message.request;
  const local::Resume resume = std::get<local::Resume>(received.message.body);
  RankState& state = parts_.state;
  const bool has_passed = state.phase == Phase::kRunning || state.phase == Phase::kPausing ||
                          state.phase == Phase::kPaused || (state.phase == Phase::kResuming && is_in_gate_);
  if (has_passed && state.incarnation <= resume.incarnation)
    return parts_.agent.answer(request, local::InGate{resume.incarnation});
  if (state.phase == Phase::kResuming && is_gate_held_) {
    resume_request_ = request;
    return;
  }
  if (state.phase != Phase::kStandbyReady || received.descriptors.empty())
    return parts_.agent.refuse(request, MessageType::kResume, ErrorCode::kRefused,
                               "The rank is not a standby that can wait at its gate (phase " +
                                   std::string(to_string(state.phase)) + ")");
  resumes_as_ = resume.incarnation;
  resume_request_ = request;
  state.phase = Phase::kResuming;
  is_gate_held_ = true;
  parts_.page.set_gate(true);
  parts_.rank.send(received.message, std::move(received.descriptors));
}

void Execution::on_in_gate(const local::Message& /*message*/) {
  if (parts_.state.phase != Phase::kResuming || !is_gate_held_ || is_in_gate_) return;
  is_in_gate_ = true;
  parts_.agent.answer(resume_request_, local::InGate{resumes_as_});
}

void Execution::resume(local::Received received) {
  const std::uint64_t request = received.message.request;
  const local::Resume resume = std::get<local::Resume>(received.message.body);
  if (resume.into_gate != 0) return enter_gate(std::move(received));
  RankState& state = parts_.state;
  const auto refuse = [&](ErrorCode code, const std::string& reason) {
    parts_.agent.refuse(request, MessageType::kResume, code, reason);
  };
  const bool with_state = !received.descriptors.empty();
  const bool fits = with_state == (state.phase == Phase::kStandbyReady);
  if (state.phase == Phase::kPaused && !(parts_.memory.is_mapped() && parts_.memory.is_idle()))
    return refuse(ErrorCode::kRefused, "The rank cannot resume: its device memory is " +
                                           std::string(to_string(parts_.memory.memory())));
  switch (state.phase) {
    case Phase::kStandbyReady:
    case Phase::kPaused:
      if (fits) break;
      return refuse(
          ErrorCode::kInvalidArgument,
          "A standby must resume with the source's host state, and a paused rank must resume without it");
    case Phase::kPausing:
      withdraw_pause();
      [[fallthrough]];
    case Phase::kRunning:  // the rank already runs, perhaps by the same order before a restart of the agent
      lift_stop();
      state.incarnation = resume.incarnation;
      set_deadline(resume.deadline_ns);
      return parts_.agent.answer(
          request,
          local::Running{state.incarnation, state.resumed_ns != 0 ? state.resumed_ns : now_ns(), 0, 0});
    case Phase::kResuming:
      resume_request_ = request;
      set_deadline(resume.deadline_ns);
      if (std::exchange(is_gate_held_, false) && !parts_.lease.is_over()) parts_.page.set_gate(false);
      return;
    default:
      return refuse(ErrorCode::kRefused,
                    "The rank cannot resume in phase " + std::string(to_string(state.phase)));
  }
  lift_stop();
  resumes_as_ = resume.incarnation;
  resume_request_ = request;
  state.phase = Phase::kResuming;
  set_deadline(resume.deadline_ns);
  parts_.hold.end(!parts_.lease.is_over());
  parts_.rank.send(received.message, std::move(received.descriptors));
  fault_point(FaultPoint::kKeeperGateOpened);
}

void Execution::on_paused(local::Received received) {
  const std::uint64_t request = received.message.request;
  if (parts_.state.phase != Phase::kPausing || request != pause_request_) {
    // The pause was withdrawn while the rank entered its barrier. A transparent rank reports the request of
    // that pause.
    const bool by_request = parts_.is_transparent;
    return parts_.rank.send(
        {0, by_request ? request : 0,
         local::Resume{by_request ? 0 : parts_.state.incarnation, parts_.lease.deadline()}});
  }
  auto& paused = std::get<local::Paused>(received.message.body);
  paused.barrier_entry_ns += parts_.state.clock_lag;
  paused.quiesced_ns += parts_.state.clock_lag;
  parts_.state.phase = Phase::kPaused;
  parts_.page.withdraw_pause();
  pause_request_ = 0;
  parts_.state.barrier_entry_ns = paused.barrier_entry_ns;
  parts_.state.quiesced_ns = paused.quiesced_ns;
  parts_.agent.send(received.message, std::move(received.descriptors));
}

void Execution::on_running(const local::Message& message) {
  // The report after a withdrawn pause is ignored. It has no request, or comes in a different phase.
  if (message.request == 0 || parts_.state.phase != Phase::kResuming) return;
  local::Running running = std::get<local::Running>(message.body);
  running.resumed_ns += parts_.state.clock_lag;
  is_in_gate_ = false;
  parts_.state.phase = Phase::kRunning;
  parts_.state.incarnation = resumes_as_;
  parts_.state.resumed_ns = running.resumed_ns;
  parts_.agent.send({0, resume_request_, running});
}

void Execution::on_failed(const local::Message& message) {
  const auto refused = static_cast<MessageType>(std::get<local::Failed>(message.body).refused_type);
  if (refused == MessageType::kPause && message.request == pause_request_ &&
      parts_.state.phase == Phase::kPausing) {
    parts_.page.withdraw_pause();
    pause_request_ = 0;
    parts_.state.phase = Phase::kRunning;
  } else if (refused == MessageType::kResume && parts_.state.phase == Phase::kResuming) {
    parts_.state.phase = Phase::kConnected;
    is_gate_held_ = is_in_gate_ = false;
    has_misfit_ = true;
  }
}

void Execution::on_rank_gone(const std::string& reason) {
  if (parts_.state.phase == Phase::kPausing) {
    parts_.page.withdraw_pause();
    parts_.agent.refuse(pause_request_, MessageType::kPause, ErrorCode::kUnavailable, reason);
  }
  if (parts_.state.phase == Phase::kResuming)
    parts_.agent.refuse(resume_request_, MessageType::kResume, ErrorCode::kUnavailable, reason);
  pause_request_ = 0;
}

}  // namespace ckpt::keeper
