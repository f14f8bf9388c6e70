// SPDX-License-Identifier: Apache-2.0
// An adopted process has no session with its keeper: no runtime of ours is in it. What the other ways ask the
// rank is answered here; stopping, saving and restoring it is the agent's work
// (agent/migration/modes/adopted_mode.h), and the keeper keeps what phase that is in.
#include <signal.h>

#include <utility>

#include "agent/keeper/adopted_process.h"
#include "agent/keeper/keeper.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

constexpr Nanos kStopCheckNs = 1'000'000;
constexpr Nanos kStoppedCheckNs = 50'000'000;

}  // namespace

// False: not a request that is special to an adopted process.
bool Keeper::handle_adopted(const local::Received& received) {
  const std::uint64_t request = received.message.request;
  local::StateSummary summary;
  summary.ready = summary.movable = 1;
  switch (type_of(received.message.body)) {
    case MessageType::kDescribe:
      return answer(request, local::DescribeEnd{summary}), true;
    case MessageType::kExport:
      return answer(request, local::ExportEnd{summary}), true;
    case MessageType::kPause:
      return pause_adopted(request), true;
    case MessageType::kResume:
      return resume_adopted(request, std::get<local::Resume>(received.message.body)), true;
    case MessageType::kPrepareDump:
      if (phase_ == Phase::kPaused) phase_ = Phase::kDumped;
      if (phase_ != Phase::kDumped) return refuse_adopted(request, MessageType::kPrepareDump), true;
      fault_point(FaultPoint::kKeeperDumped);
      return answer(request, local::DumpReady{}), true;
    case MessageType::kReattach:
      if (phase_ == Phase::kDumped) phase_ = Phase::kPaused;
      if (phase_ != Phase::kPaused) return refuse_adopted(request, MessageType::kReattach), true;
      if (!lease_over_) parts_.process.signal_group(SIGCONT);
      return answer(request, local::Done{}), true;
    default:
      return false;
  }
}

void Keeper::refuse_adopted(std::uint64_t request, MessageType type) {
  refuse(request, type, ErrorCode::kRefused,
         "The adopted process cannot do this in phase " + std::string(to_string(phase_)));
}

void Keeper::pause_adopted(std::uint64_t request) {
  if (phase_ != Phase::kRunning) return refuse_adopted(request, MessageType::kPause);
  phase_ = Phase::kPaused;
  barrier_entry_ns_ = quiesced_ns_ = now_ns();
  answer(request, local::Paused{barrier_entry_ns_, quiesced_ns_, 0});
}

void Keeper::resume_adopted(std::uint64_t request, const local::Resume& resume) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kPaused)
    return refuse_adopted(request, MessageType::kResume);
  if (phase_ == Phase::kPaused) {
    resumed_ns_ = now_ns();
    restored_ = true;
  }
  phase_ = Phase::kRunning;
  incarnation_ = resume.incarnation;
  set_deadline(resume.deadline_ns);
  answer(request, local::Running{incarnation_, resumed_ns_ != 0 ? resumed_ns_ : now_ns(), 0, 0});
}

// Nobody tells who is not its parent that a process has stopped, or goes on by somebody else's SIGCONT, so it
// is looked at for as long as it has no lease.
void Keeper::look_whether_stopped() {
  const bool stopped = is_stopped(parts_.process.pid());
  if (!stopped) parts_.process.signal_group(SIGSTOP);
  if (stopped && !stop_reported_) rank_stopped();
  parts_.deadline.set(now_ns() + (stopped ? kStoppedCheckNs : kStopCheckNs));
}

}  // namespace ckpt::keeper
