// SPDX-License-Identifier: Apache-2.0
// What the rank tells: the keeper follows its phase and passes the rest on to the agent.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "agent/keeper/keeper.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

}  // namespace

void Keeper::welcome_rank(Peer peer, const local::Hello& hello) {
  const Result<local::Socket::Peer> who = peer.identity();
  const auto turn_away = [&peer](const std::string& why) {
    (void)peer.send({0, 0, to_failed(MessageType::kHello, Error(ErrorCode::kRefused, why))}).has_value();
  };
  if (!who.has_value() || !parts_.process.contains(who.assume_value().pid)) {
    has_outsider_ = has_outsider_ || (is_transparent() && hello.way == local::Way::kTransparent);
    return turn_away("This process does not belong to the job of this keeper");
  }
  // It may have asked right before its end; a session would make the job look alive for ever.
  if (phase_ == Phase::kExited) return turn_away("The job's program has ended");
  if (hello.way != parts_.config.way) return turn_away("The job was started for the other way to move");
  if (is_transparent()) return welcome_transparent(std::move(peer), who.assume_value().pid, hello);
  if (rank_) return turn_away("The job has a session already: a job has one rank");
  rank_ = std::move(peer);
  session_pid_ = who.assume_value().pid;
  phase_ = Phase::kConnected;
  greet_rank(rank_);
}

void Keeper::greet_rank(Peer& peer) {
  UniqueFd page(::fcntl(parts_.page.fd(), F_DUPFD_CLOEXEC, 0));
  local::Welcome welcome;
  // A second session of the same program does not wait for what has arrived already.
  welcome.role = resumed_ns_ == 0 ? parts_.config.role : local::Role::kFresh;
  welcome.incarnation = incarnation_;
  welcome.job.assign(parts_.config.job);
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(std::move(page));
  (void)peer.send({0, 0, welcome}, std::move(descriptors))
      .has_value();  // a peer that is gone is noticed by its end
}

void Keeper::read_rank() {
  if (rank_.wants_to_write() && !rank_.flush().has_value()) return detach_rank();
  // All that is there: the rank's last words come before its end.
  while (rank_ && !(agent_ && agent_.is_full())) {
    Result<local::Received> received = rank_.receive();
    if (!received.has_value()) {
      ::dprintf(2, "The rank's connection is dropped: %s\n", received.assume_error().to_string().c_str());
      return detach_rank();
    }
    if (received.assume_value().transfer == local::Transfer::kClosed) return detach_rank();
    if (received.assume_value().transfer == local::Transfer::kNothing) return;
    handle_rank(std::move(received).assume_value());
  }
}

void Keeper::handle_rank(local::Received received) {
  local::Message& message = received.message;
  switch (type_of(message.body)) {
    case MessageType::kReady:
      phase_ = Phase::kRunning;
      break;
    case MessageType::kStandbyReady:
      phase_ = Phase::kStandbyReady;
      break;
    case MessageType::kPaused:
      return on_paused(std::move(received));
    case MessageType::kRunning:
      return on_running(message);
    case MessageType::kFailed:
      if (pending_.type != MessageType{} && message.request == pending_.request)
        return on_memory_failed(message);
      on_rank_failed(message);
      break;
    case MessageType::kExportBatch:
    case MessageType::kExportEnd:
    case MessageType::kRegionFreed:
    case MessageType::kTensorDropped:
      if (message.request != export_request_) return;  // of an export that has been stopped
      if (is_transparent()) keep_exported(received);
      if (auto* end = std::get_if<local::ExportEnd>(&message.body)) mark_not_movable(end->summary);
      break;
    case MessageType::kDescribeEnd:
      mark_not_movable(std::get<local::DescribeEnd>(message.body).summary);
      break;
    case MessageType::kTensors:
    case MessageType::kRegions:
      break;
    case MessageType::kReleased:
    case MessageType::kMapAck:
    case MessageType::kMapped:
    case MessageType::kMade:
    case MessageType::kDumpReady:
      return handle_memory_answer(std::move(received));
    default:
      ::dprintf(2, "The rank sent a message that a rank does not send\n");
      return detach_rank();
  }
  send_agent(message, std::move(received.descriptors));
}

void Keeper::on_paused(local::Received received) {
  if (phase_ != Phase::kPausing || received.message.request != pause_request_) {
    // The pause was withdrawn while the rank entered its barrier.
    // The rank's message says which one.
    const bool by_request = is_transparent();
    return send_rank({0, by_request ? received.message.request : 0,
                      local::Resume{by_request ? 0 : incarnation_, deadline_ns_, 0}});
  }
  auto& paused = std::get<local::Paused>(received.message.body);
  paused.barrier_entry_ns += rank_lag_;
  paused.quiesced_ns += rank_lag_;
  phase_ = Phase::kPaused;
  parts_.page.withdraw_pause();
  pause_request_ = 0;
  barrier_entry_ns_ = paused.barrier_entry_ns;
  quiesced_ns_ = paused.quiesced_ns;
  send_agent(received.message, std::move(received.descriptors));
}

void Keeper::on_running(const local::Message& message) {
  if (message.request == 0 || phase_ != Phase::kResuming) return;  // the end of a withdrawn pause
  local::Running running = std::get<local::Running>(message.body);
  running.resumed_ns += rank_lag_;
  phase_ = Phase::kRunning;
  incarnation_ = resumes_as_;
  resumed_ns_ = running.resumed_ns;
  send_agent({0, resume_request_, running});
}

void Keeper::on_rank_failed(const local::Message& message) {
  const auto refused = static_cast<MessageType>(std::get<local::Failed>(message.body).refused_type);
  if (refused == MessageType::kPause && message.request == pause_request_ && phase_ == Phase::kPausing) {
    parts_.page.withdraw_pause();
    pause_request_ = 0;
    phase_ = Phase::kRunning;
  } else if (refused == MessageType::kResume && phase_ == Phase::kResuming) {
    phase_ = Phase::kConnected;  // a standby that does not fit
  } else if (refused == MessageType::kExport) {
    export_request_ = 0;
  }
}

// The rank has ended its session, or has ended. What it was asked and has not answered fails here.
void Keeper::detach_rank() {
  rank_ = Peer();
  session_pid_ = 0;
  if (std::exchange(dump_ready_, false)) {
    phase_ = Phase::kDumped;
    export_request_ = 0;
    fault_point(FaultPoint::kKeeperDumped);
    return finish(local::DumpReady{});
  }
  const std::string why = "The program has ended its session";
  if (phase_ == Phase::kLeaving) parts_.process.signal_group(SIGKILL);
  if (export_request_ != 0) refuse(export_request_, MessageType::kExport, ErrorCode::kUnavailable, why);
  if (phase_ == Phase::kPausing) {
    parts_.page.withdraw_pause();
    refuse(pause_request_, MessageType::kPause, ErrorCode::kUnavailable, why);
  }
  if (phase_ == Phase::kResuming) refuse(resume_request_, MessageType::kResume, ErrorCode::kUnavailable, why);
  export_request_ = 0;
  pause_request_ = 0;
  if (pending_.type != MessageType{}) finish(to_failed(pending_.type, Error(ErrorCode::kUnavailable, why)));
  memory_ = local::MemoryState::kMapped;  // a later session starts from nothing
  exported_.clear();
  if (phase_ != Phase::kLeaving && phase_ != Phase::kExited) phase_ = Phase::kStarting;
  promote_other();
}

void Keeper::send_rank(const local::Message& message, std::vector<UniqueFd> descriptors) {
  if (!rank_) return;
  if (!rank_.send(message, std::move(descriptors)).has_value()) detach_rank();
}

}  // namespace ckpt::keeper
