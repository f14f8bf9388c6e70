// SPDX-License-Identifier: Apache-2.0
// Before this keeper kills a rank by itself: where a context has come back by a restore, some drivers hang
// the GPU, or the host, if its process is killed while it has it. So the rank's memory is exported to this
// keeper, the rank is paused and lets go of it, and a program of its own saves the context. What an agent
// orders elsewhere is asked of the rank here under a number that no agent uses. Whatever fails, the rank is
// killed, and its end says so.
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "agent/keeper/keeper.h"
#include "agent/keeper/saver.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

constexpr std::uint64_t kOwnRequest = ~std::uint64_t{0};
constexpr Nanos kMaxLastSave = 5'000'000'000;

}  // namespace

bool Keeper::is_own(std::uint64_t request) {
  return request == kOwnRequest;
}

void Keeper::kill_rank() {
  if (phase_ == Phase::kExited || is_saving()) return;
  if (last_save_ == LastSave::kNone && begin_last_save()) return;
  parts_.process.signal_group(SIGKILL);
}

// False: there is nothing to save, or no way to it.
bool Keeper::begin_last_save() {
  if (!restored_ || session_pid_ == 0 || phase_ == Phase::kDumped || phase_ == Phase::kLeaving) return false;
  last_save_ = LastSave::kUnderWay;
  parts_.grace.set(now_ns() + kMaxLastSave);
  if (lease_over_) {
    end_last_save("it has no lease, so it may not run to save it");
  } else if (parts_.config.adopted) {
    save_context();
  } else if (phase_ == Phase::kRunning && rank_ && export_request_ == 0) {
    exported_.clear();
    export_request_ = kOwnRequest;
    send_rank({0, kOwnRequest, local::Export{}});
  } else if (phase_ == Phase::kRunning && rank_) {
    on_pause(kOwnRequest);  // an agent has asked for its memory
  } else if (phase_ == Phase::kPaused && pending_.type == MessageType{}) {
    on_release(kOwnRequest);
  } else {
    end_last_save("it was in phase " + std::string(to_string(phase_)));
  }
  return true;
}

// What the rank says to this keeper's own requests, or this keeper to them.
void Keeper::on_own_answer(const local::Body& body) {
  if (!is_saving()) return;
  if (const auto* batch = std::get_if<local::ExportBatch>(&body)) {
    send_rank({0, kOwnRequest, local::ExportAck{batch->sequence}});
  } else if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
    send_rank({0, kOwnRequest, local::RegionFreedAck{freed->id, freed->generation}});
  } else if (std::holds_alternative<local::ExportEnd>(body)) {
    on_pause(kOwnRequest);
  } else if (std::holds_alternative<local::Paused>(body)) {
    on_release(kOwnRequest);
  } else if (std::holds_alternative<local::Released>(body)) {
    save_context();
  } else if (const auto* failed = std::get_if<local::Failed>(&body)) {
    end_last_save(std::string(failed->text.view()));
  }
}

void Keeper::save_context() {
  Result<pid_t> saver = start_saver(parts_.config.context_program, session_pid_);
  if (!saver.has_value()) return end_last_save(saver.assume_error().to_string());
  saver_ = saver.assume_value();
}

void Keeper::on_saver_ended(int status) {
  saver_ = 0;
  if (!is_saving()) return;
  const bool saved = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  end_last_save(saved ? "" : parts_.config.context_program + " failed; why stands in keeper.log");
}

void Keeper::on_last_save_late() {
  if (saver_ != 0) ::kill(saver_, SIGKILL);
  end_last_save("the driver or the program took over " + std::to_string(kMaxLastSave / kNanosPerMs) + " ms");
}

void Keeper::end_last_save(const std::string& why_not) {
  last_save_ = LastSave::kOver;
  parts_.grace.clear();
  last_save_said_ = why_not.empty() ? "its context was saved before"
                                    : "its context was not saved before, so look at its GPU: " + why_not;
  ::dprintf(2, "The program is killed; %s\n", last_save_said_.c_str());
  parts_.process.signal_group(SIGKILL);
}

}  // namespace ckpt::keeper
