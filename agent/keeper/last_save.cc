// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/last_save.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "agent/keeper/rank/saver.h"

namespace ckpt::keeper {
namespace {

using local::Phase;

constexpr Nanos kMaxLastSave = 5'000'000'000;

}  // namespace

bool LastSave::begin() {
  const Phase phase = parts_.state.phase;
  const bool has_context = parts_.state.restored && parts_.rank.pid() != 0;
  if (stage_ != Stage::kNone || !has_context || phase == Phase::kDumped || phase == Phase::kLeaving)
    return false;
  stage_ = Stage::kUnderWay;
  parts_.limit.set(now_ns() + kMaxLastSave);
  if (parts_.lease.is_over()) {
    end("the job has no lease, so it may not run to save its context");
  } else if (parts_.config.adopted) {
    save_context();
  } else if (phase == Phase::kRunning && parts_.rank.is_open() && !parts_.memory.is_exporting()) {
    parts_.memory.begin_export(kOwnRequest);
    parts_.rank.send({0, kOwnRequest, local::Export{}});
  } else if (phase == Phase::kRunning && parts_.rank.is_open()) {
    parts_.execution.pause(kOwnRequest, {});  // an agent has already exported the memory, so only the pause
                                              // is missing
  } else if (phase == Phase::kPaused && parts_.memory.is_idle()) {
    parts_.memory.release(kOwnRequest);
  } else {
    end("the job was in phase " + std::string(to_string(phase)));
  }
  return true;
}

// Handles the answers of the rank, or of this keeper, to this keeper's own requests.
void LastSave::on_own_answer(const local::Body& body) {
  if (!is_under_way()) return;
  if (const auto* batch = std::get_if<local::ExportBatch>(&body)) {
    parts_.rank.send({0, kOwnRequest, local::ExportAck{batch->sequence}});
  } else if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
    parts_.rank.send({0, kOwnRequest, local::RegionFreedAck{freed->id, freed->generation}});
  } else if (std::holds_alternative<local::ExportEnd>(body)) {
    parts_.execution.pause(kOwnRequest, {});
  } else if (std::holds_alternative<local::Paused>(body)) {
    parts_.memory.release(kOwnRequest);
  } else if (std::holds_alternative<local::Released>(body)) {
    save_context();
  } else if (const auto* failed = std::get_if<local::Failed>(&body)) {
    end(std::string(failed->text.view()));
  }
}

void LastSave::save_context() {
  Result<pid_t> saver = start_saver(parts_.config.context_program, parts_.rank.pid());
  if (!saver.has_value()) return end(saver.error().to_string());
  saver_ = *saver;
}

void LastSave::on_child_ended(pid_t pid, int status) {
  if (pid != saver_) return;
  saver_ = 0;
  if (!is_under_way()) return;
  const bool saved = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  end(saved ? "" : parts_.config.context_program + " failed; see keeper.log");
}

void LastSave::on_limit() {
  if (saver_ != 0) ::kill(saver_, SIGKILL);
  end("the driver or the program took more than " + std::to_string(kMaxLastSave / kNanosPerMs) + " ms");
}

void LastSave::on_rank_exited() {
  if (is_under_way()) stage_ = Stage::kOver;
}

void LastSave::end(const std::string& why_not) {
  stage_ = Stage::kOver;
  parts_.limit.clear();
  said_ = why_not.empty() ? "its context was saved before the kill"
                          : "its context was not saved before the kill, so check its GPU: " + why_not;
  ::dprintf(2, "The program is killed; %s\n", said_.c_str());
  parts_.owner.on_last_save_over();
}

}  // namespace ckpt::keeper
