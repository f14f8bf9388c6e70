// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/termination.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/keeper/rank/dump_end.h"
#include "agent/keeper/rank/saver.h"
#include "libckpt/base/clock.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

constexpr std::uint64_t kMovedGraceMs = 5000;
constexpr std::uint64_t kMaxGraceMs = 24ull * 3600 * 1000;

}  // namespace

Termination::Termination(Parts parts)
    : parts_(std::move(parts)),
      last_save_({parts_.config, parts_.state, parts_.rank, parts_.lease, parts_.memory, parts_.execution,
                  parts_.grace, *this}) {}

void Termination::stop(std::uint64_t request, std::uint64_t grace_ms) {
  if (parts_.state.phase != Phase::kExited && !last_save_.is_under_way()) {
    parts_.state.ended_by_keeper = true;
    // A rank without a lease must not run, not even to clean up. A signal that would kill a restored rank is
    // treated as a kill.
    const bool at_once = grace_ms == 0 || parts_.lease.is_over() ||
                         (parts_.state.restored && !withstands(parts_.rank.pid(), SIGTERM));
    if (at_once) {
      kill_after_save();
    } else {
      gives_grace_ = true;
      parts_.process.terminate_all();
      set_grace(std::min(grace_ms, kMaxGraceMs));
    }
  }
  if (request != 0) parts_.agent.answer(request, local::Done{});
}

void Termination::kill(std::uint64_t request) {
  if (parts_.state.phase != Phase::kExited && !last_save_.is_under_way()) {
    parts_.state.ended_by_keeper = true;
    kill_now();
  }
  parts_.agent.answer(request, local::Done{});
}

void Termination::moved(std::uint64_t request) {
  const Phase phase = parts_.state.phase;
  if (phase == Phase::kLeaving || phase == Phase::kExited) return parts_.agent.answer(request, local::Done{});
  if (phase != Phase::kPaused && phase != Phase::kDumped)
    return parts_.agent.refuse(request, MessageType::kMoved, ErrorCode::kRefused,
                               "Only a paused rank can leave the source");
  parts_.state.phase = Phase::kLeaving;
  parts_.state.moved = true;
  parts_.state.ended_by_keeper = true;
  // No part of an unmodified program may run after this point: no handler and no destructor.
  if (parts_.is_transparent) {
    kill_now();
    return parts_.agent.answer(request, local::Done{});
  }
  parts_.rank.send({0, request, local::Moved{}});
  // A rank that was stopped by the expiry of its lease may continue now, because it only has to exit.
  parts_.lease.set_deadline(local::kNoDeadline, true);
  set_grace(kMovedGraceMs);
  parts_.agent.answer(request, local::Done{});
}

void Termination::set_grace(std::uint64_t grace_ms) {
  parts_.grace.set(now_ns() + static_cast<Nanos>(grace_ms) * kNanosPerMs);
}

void Termination::on_timer() {
  if (!parts_.grace.consume_expiry()) return;
  if (last_save_.is_under_way()) return last_save_.on_limit();
  kill_after_save();
}

void Termination::kill_after_save() {
  if (parts_.state.phase == Phase::kExited || last_save_.is_under_way()) return;
  if (!last_save_.begin()) kill_now();
}

void Termination::kill_now() {
  if (const Result<void> killed = parts_.process.kill_all(); !killed.has_value())
    ::dprintf(2, "%s\n", killed.error().to_string().c_str());
  // The tracer is then a CRIU that dumps the process. CRIU does not dump a process that another program
  // traces.
  if (parts_.state.phase == Phase::kDumped) kill_tracers_of(parts_.process.pid());
}

void Termination::on_rank_gone() {
  if (parts_.state.phase == Phase::kLeaving) kill_now();
}

void Termination::on_exited() {
  parts_.grace.clear();
  last_save_.on_rank_exited();
}

}  // namespace ckpt::keeper
