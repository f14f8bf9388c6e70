// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/adopted_rank.h"

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {

using local::MessageType;
using local::Phase;

bool AdoptedRank::handle(const local::Received& received) {
  const std::uint64_t request = received.message.request;
  local::StateSummary summary;
  summary.ready = summary.movable = 1;
  switch (type_of(received.message.body)) {
    case MessageType::kDescribe:
      return parts_.agent.answer(request, local::DescribeEnd{summary}), true;
    case MessageType::kExport:
      return parts_.agent.answer(request, local::ExportEnd{summary}), true;
    case MessageType::kPause:
      return pause(request), true;
    case MessageType::kResume:
      return resume(request, std::get<local::Resume>(received.message.body)), true;
    case MessageType::kPrepareDump:
      return prepare_dump(request), true;
    case MessageType::kReattach:
      return reattach(request, std::get<local::Reattach>(received.message.body)), true;
    default:
      return false;
  }
}

void AdoptedRank::refuse(std::uint64_t request, MessageType type) {
  parts_.agent.refuse(request, type, ErrorCode::kRefused,
                      "The adopted process cannot carry out this request in phase " +
                          std::string(to_string(parts_.state.phase)));
}

void AdoptedRank::pause(std::uint64_t request) {
  if (parts_.state.phase != Phase::kRunning) return refuse(request, MessageType::kPause);
  parts_.state.phase = Phase::kPaused;
  parts_.state.barrier_entry_ns = parts_.state.quiesced_ns = now_ns();
  parts_.agent.answer(request, local::Paused{parts_.state.barrier_entry_ns, parts_.state.quiesced_ns, 0});
}

void AdoptedRank::prepare_dump(std::uint64_t request) {
  if (parts_.state.phase == Phase::kPaused) parts_.state.phase = Phase::kDumped;
  if (parts_.state.phase != Phase::kDumped) return refuse(request, MessageType::kPrepareDump);
  fault_point(FaultPoint::kKeeperDumped);
  parts_.agent.answer(request, local::DumpReady{});
}

void AdoptedRank::reattach(std::uint64_t request, const local::Reattach& how) {
  if (parts_.state.phase != Phase::kDumped && parts_.state.phase != Phase::kPaused)
    return refuse(request, MessageType::kReattach);
  if (parts_.state.phase == Phase::kDumped && how.restore_thread != 0) {
    const Result<void> held = parts_.hold.acquire(
        parts_.process.pid(), {static_cast<pid_t>(how.restore_thread)}, how.hold_ms * kNanosPerMs);
    if (!held.has_value())
      return parts_.agent.answer(request, to_failed(MessageType::kReattach, held.error()));
  }
  parts_.state.phase = Phase::kPaused;
  if (!parts_.lease.is_over()) parts_.hold.go_on();
  parts_.agent.answer(request, local::Done{});
}

void AdoptedRank::resume(std::uint64_t request, const local::Resume& resume) {
  RankState& state = parts_.state;
  if (state.phase != Phase::kRunning && state.phase != Phase::kPaused)
    return refuse(request, MessageType::kResume);
  if (state.phase == Phase::kPaused) {
    state.resumed_ns = now_ns();
    state.restored = true;
  }
  state.phase = Phase::kRunning;
  state.incarnation = resume.incarnation;
  parts_.lease.set_deadline(resume.deadline_ns, true);
  parts_.hold.end(!parts_.lease.is_over());
  const Nanos resumed_ns = state.resumed_ns != 0 ? state.resumed_ns : now_ns();
  parts_.agent.answer(request, local::Running{state.incarnation, resumed_ns, 0, 0});
}

}  // namespace ckpt::keeper
