// SPDX-License-Identifier: Apache-2.0
// What the agent asks of the keeper.
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "agent/keeper/keeper.h"
#include "agent/keeper/saver.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

constexpr std::uint64_t kMovedGraceMs = 5000;
constexpr std::uint64_t kMaxGraceMs = 24ull * 3600 * 1000;

}  // namespace

void Keeper::read_agent() {
  if (agent_.wants_to_write() && !agent_.flush().has_value()) return detach_agent();
  Result<local::Received> received = agent_.receive();
  if (!received.has_value()) {
    ::dprintf(2, "The agent's connection is dropped: %s\n", received.assume_error().to_string().c_str());
    return detach_agent();
  }
  if (received.assume_value().transfer == local::Transfer::kClosed) return detach_agent();
  if (received.assume_value().transfer == local::Transfer::kDone)
    handle_agent(std::move(received).assume_value());
}

void Keeper::handle_agent(local::Received received) {
  const std::uint64_t request = received.message.request;
  local::Body& body = received.message.body;
  const MessageType type = type_of(body);
  if (request == 0) return refuse(0, type, ErrorCode::kProtocol, "A request needs a number that is not 0");
  if (is_saving() && type != MessageType::kAttach && type != MessageType::kStop &&
      type != MessageType::kKill && type != MessageType::kSetDeadline)
    return refuse(request, type, ErrorCode::kRefused,
                  "The job is about to be killed: its context is being saved");
  if (parts_.config.adopted && handle_adopted(received)) return;
  switch (type) {
    case MessageType::kAttach:
      return answer(request, status());
    case MessageType::kDescribe:
    case MessageType::kExportAck:
    case MessageType::kRegionFreedAck:
      return relay_to_rank(std::move(received));
    case MessageType::kExport:
      if (memory_ != local::MemoryState::kMapped)
        return refuse(request, type, ErrorCode::kRefused,
                      "The job's device memory is not mapped: map it first");
      exported_.clear();
      if (rank_) export_request_ = request;
      return relay_to_rank(std::move(received));
    case MessageType::kStopExport:
      stop_export();
      return answer(request, local::Done{});
    case MessageType::kPause:
      return on_pause(request);
    case MessageType::kResume:
      return on_resume(std::move(received));
    case MessageType::kMoved:
      return on_moved(request);
    case MessageType::kSetDeadline:
      set_deadline(std::get<local::SetDeadline>(body).deadline_ns);
      return answer(request, local::Done{});
    case MessageType::kStop:
      return on_stop(request, std::get<local::Stop>(body).grace_ms);
    case MessageType::kKill:
      return on_kill(request);
    case MessageType::kShutdown:
      return on_shutdown(request);
    case MessageType::kRelease:
    case MessageType::kDeposit:
    case MessageType::kWithdraw:
    case MessageType::kMap:
    case MessageType::kMake:
    case MessageType::kPrepareDump:
    case MessageType::kReattach:
    case MessageType::kFetch:
    case MessageType::kReplace:
    case MessageType::kWithdrawRegions:
      return handle_memory_request(std::move(received));
    default:
      return refuse(request, type, ErrorCode::kProtocol, "An agent does not send this message");
  }
}

void Keeper::refuse(std::uint64_t request, MessageType type, ErrorCode code, const std::string& why) {
  answer(request, to_failed(type, Error(code, why)));
}

void Keeper::relay_to_rank(local::Received received) {
  if (!rank_) {
    const bool acknowledges = !std::holds_alternative<local::Describe>(received.message.body) &&
                              !std::holds_alternative<local::Export>(received.message.body);
    if (acknowledges) return;  // of what is gone: nobody waits for it
    return refuse(received.message.request, type_of(received.message.body), ErrorCode::kRefused,
                  phase_ == Phase::kExited ? "The program has ended"
                  : is_transparent()       ? "The program has no session: it does not use a GPU now (phase " +
                                           std::string(to_string(phase_)) + ")"
                                     : "The program has not called ckpt_init");
  }
  send_rank(received.message, std::move(received.descriptors));
}

void Keeper::stop_export() {
  drop_exported();
  if (export_request_ == 0) return;
  if (rank_) send_rank({0, export_request_, local::StopExport{}});
  export_request_ = 0;
}

void Keeper::on_pause(std::uint64_t request) {
  if (phase_ != Phase::kRunning || !rank_) {
    const std::string why = phase_ == Phase::kPausing || phase_ == Phase::kPaused
                                ? "The job is paused already"
                            : phase_ == Phase::kExited
                                ? "The program has ended"
                                : "The program has not called ckpt_ready, or has ended its session (phase " +
                                      std::string(to_string(phase_)) + ")";
    return refuse(request, MessageType::kPause, ErrorCode::kRefused, why);
  }
  if (const std::string why = why_not_movable(); !why.empty())
    return refuse(request, MessageType::kPause, ErrorCode::kRefused, why);
  phase_ = Phase::kPausing;
  pause_request_ = request;
  parts_.page.ask_pause(request);
  if (is_transparent()) send_rank({0, request, local::Pause{}});
}

// The rank may be on its way into the pause: one that says Paused nevertheless is told to go on.
void Keeper::withdraw_pause() {
  parts_.page.withdraw_pause();
  if (is_transparent()) send_rank({0, pause_request_, local::Resume{0, deadline_ns_, 0}});
  pause_request_ = 0;
  if (phase_ == Phase::kPausing) phase_ = Phase::kRunning;
}

void Keeper::on_resume(local::Received received) {
  const std::uint64_t request = received.message.request;
  const local::Resume& resume = std::get<local::Resume>(received.message.body);
  const bool with_state = !received.descriptors.empty();
  const bool starts_standby = phase_ == Phase::kStandbyReady && with_state;
  const bool ends_pause = phase_ == Phase::kPaused && !with_state;
  if (phase_ == Phase::kPaused &&
      (memory_ != local::MemoryState::kMapped || pending_.type != MessageType{})) {
    return refuse(request, MessageType::kResume, ErrorCode::kRefused,
                  "The rank cannot go on: its device memory is " + std::string(to_string(memory_)));
  }
  switch (phase_) {
    case Phase::kStandbyReady:
    case Phase::kPaused:
      if (starts_standby || ends_pause) break;
      return refuse(request, MessageType::kResume, ErrorCode::kInvalidArgument,
                    "A standby goes on with the source's host state, a paused rank without");
    case Phase::kPausing:
      withdraw_pause();
      [[fallthrough]];
    case Phase::kRunning:  // it runs already, perhaps by the same order, given before a restart of the agent
      incarnation_ = resume.incarnation;
      set_deadline(resume.deadline_ns);
      return answer(request, local::Running{incarnation_, resumed_ns_ != 0 ? resumed_ns_ : now_ns(), 0, 0});
    case Phase::kResuming:
      resume_request_ = request;
      return set_deadline(resume.deadline_ns);
    default:
      return refuse(request, MessageType::kResume, ErrorCode::kRefused,
                    "The rank cannot go on in phase " + std::string(to_string(phase_)));
  }
  resumes_as_ = resume.incarnation;
  resume_request_ = request;
  phase_ = Phase::kResuming;
  set_deadline(resume.deadline_ns);
  send_rank(received.message, std::move(received.descriptors));
  fault_point(FaultPoint::kKeeperGateOpened);
}

void Keeper::on_moved(std::uint64_t request) {
  if (phase_ == Phase::kLeaving || phase_ == Phase::kExited) return answer(request, local::Done{});
  if (phase_ != Phase::kPaused && phase_ != Phase::kDumped) {
    return refuse(request, MessageType::kMoved, ErrorCode::kRefused, "Only a paused rank can leave");
  }
  phase_ = Phase::kLeaving;
  moved_ = true;
  ended_by_keeper_ = true;
  // Nothing of an unmodified program may run any more: no handler, no destructor.
  if (is_transparent()) {
    parts_.process.signal_group(SIGKILL);
    return answer(request, local::Done{});
  }
  send_rank({0, request, local::Moved{}});
  // A rank that was stopped by its lease's end may go now: it has nothing left to do but to end.
  set_deadline(local::kNoDeadline);
  parts_.grace.set(now_ns() + static_cast<Nanos>(kMovedGraceMs) * kNanosPerMs);
  answer(request, local::Done{});
}

void Keeper::on_stop(std::uint64_t request, std::uint64_t grace_ms) {
  if (phase_ != Phase::kExited && !is_saving()) {
    ended_by_keeper_ = true;
    // A rank without a lease must not run, not even to clean up. A signal that kills is a kill.
    const bool at_once = grace_ms == 0 || lease_over_ || (restored_ && !withstands(session_pid_, SIGTERM));
    if (at_once) {
      kill_rank();
    } else {
      parts_.process.signal_group(SIGTERM);
      parts_.grace.set(now_ns() + static_cast<Nanos>(std::min(grace_ms, kMaxGraceMs)) * kNanosPerMs);
    }
  }
  if (request != 0) answer(request, local::Done{});
}

// An agent that orders this has saved what there is to save.
void Keeper::on_kill(std::uint64_t request) {
  if (phase_ != Phase::kExited && !is_saving()) {
    ended_by_keeper_ = true;
    parts_.process.signal_group(SIGKILL);
  }
  answer(request, local::Done{});
}

void Keeper::on_shutdown(std::uint64_t request) {
  if (phase_ != Phase::kExited) {
    return refuse(request, MessageType::kShutdown, ErrorCode::kRefused,
                  "The job's program is still alive; stop it first");
  }
  shutdown_ = true;
  answer(request, local::Done{});
}

// The agent went away. A pause that has not begun is withdrawn, one that holds stays: the next agent knows
// whether BARRIER is recorded.
void Keeper::detach_agent() {
  if (!agent_) return;
  agent_ = Peer();
  if (is_saving()) return;  // what is under way is this keeper's own
  stop_export();
  pending_.asker = 0;
  if (phase_ == Phase::kPausing) withdraw_pause();
}

void Keeper::send_agent(const local::Message& message, std::vector<UniqueFd> descriptors) {
  if (is_own(message.request)) return on_own_answer(message.body);
  if (!agent_) return;
  if (!agent_.send(message, std::move(descriptors)).has_value()) detach_agent();
}

local::Status Keeper::status() const {
  local::Status status;
  status.job.assign(parts_.config.job);
  status.incarnation = incarnation_;
  status.role = parts_.config.role;
  status.phase = phase_;
  status.keeper_pid = static_cast<std::uint32_t>(::getpid());
  status.rank_pid = static_cast<std::uint32_t>(parts_.process.pid());
  status.rank_start_ticks = parts_.process.start_ticks();
  status.wait_status = wait_status_;
  status.ended_by_keeper = ended_by_keeper_ ? 1 : 0;
  status.stopped = stop_reported_ ? 1 : 0;
  status.exporting = export_request_ != 0 ? 1 : 0;
  status.deadline_ns = deadline_ns_;
  status.barrier_entry_ns = barrier_entry_ns_;
  status.quiesced_ns = quiesced_ns_;
  status.resumed_ns = resumed_ns_;
  status.way = parts_.config.way;
  status.memory = memory_;
  status.sessions = static_cast<std::uint32_t>(others_.size() + (rank_ ? 1 : 0));
  status.session_pid = static_cast<std::uint32_t>(session_pid_);
  status.exported_regions = exported_.size();
  status.arrived_regions = arrived_.size();
  status.arrived_migration = arrived_migration_;
  return status;
}

}  // namespace ckpt::keeper
