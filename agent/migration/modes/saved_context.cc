// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/saved_context.h"

#include "libckpt/base/fault.h"

namespace ckpt::agent {
namespace {

// The time limit for the driver, which copies all device memory of the process in this time.
constexpr Milliseconds kDriverTime{300000};
constexpr int kAttempts = 20;

}  // namespace

Task<Result<GpuUuid>> gpu_of_context(const MigrationContext& context, std::shared_ptr<Job> job,
                                     context::ProcessState state) {
  const std::string goes_to = job->record().context_goes_to;
  if (!goes_to.empty() && state != context::ProcessState::kCheckpointed) {
    CKPT_CO_TRYV(co_await job->set_context_location(goes_to, ""));
  }
  if (!job->record().context_gpu.empty()) co_return parse_gpu_uuid(job->record().context_gpu);
  CKPT_CO_TRY(identity, context.gpus.identity_of(job->gpu()));
  co_return identity.uuid;
}

Task<Result<void>> SavedContext::inspect(std::shared_ptr<KeeperLink> keeper) {
  CKPT_CO_TRY(status, co_await keeper->attach());
  if (status.session_pid == 0) co_return Error(ErrorCode::kRefused, "No process of the job uses a GPU");
  pid_ = static_cast<pid_t>(status.session_pid);
  CKPT_CO_TRY(state, co_await context_.contexts.state(pid_));
  state_ = state;
  CKPT_CO_TRY(own, co_await gpu_of_context(context_, job_, state_));
  on_ = own;
  co_return ok();
}

Task<Result<void>> SavedContext::lock(Milliseconds timeout) {
  if (state_ != context::ProcessState::kRunning) co_return ok();
  CKPT_CO_TRYV(co_await context_.contexts.lock(pid_, timeout));
  state_ = context::ProcessState::kLocked;
  co_return ok();
}

Task<Result<void>> SavedContext::save() {
  CKPT_CO_TRYV(co_await lock(kDriverTime));
  if (state_ == context::ProcessState::kLocked) {
    CKPT_CO_TRYV(co_await context_.contexts.checkpoint(pid_, kDriverTime));
    state_ = context::ProcessState::kCheckpointed;
  }
  if (state_ == context::ProcessState::kCheckpointed) co_return ok();
  co_return Error(ErrorCode::kDevice, "The driver has lost the context of process " + std::to_string(pid_));
}

Task<Result<void>> SavedContext::restore(GpuUuid gpu) {
  if (on_ != gpu) {
    CKPT_CO_TRYV(co_await save());
  }
  if (state_ == context::ProcessState::kCheckpointed) {
    CKPT_CO_TRYV(co_await job_->set_context_location(to_text(on_), to_text(gpu)));
    std::vector<context::GpuPair> pairs;
    if (on_ != gpu) pairs.push_back(context::GpuPair{on_, gpu});
    CKPT_CO_TRYV(co_await restore_on(std::move(pairs)));
    fault_point(FaultPoint::kTargetContextRestored);
    CKPT_CO_TRYV(co_await job_->set_context_location(to_text(gpu), ""));
    state_ = context::ProcessState::kLocked;
    on_ = gpu;
  }
  co_return ok();
}

// Restores the context. A helper that exited during the order may have executed it. The process's host
// threads already run, so the restore is repeated as long as it can succeed.
Task<Result<void>> SavedContext::restore_on(std::vector<context::GpuPair> pairs) {
  auto restored = co_await context_.contexts.restore(pid_, pairs, kDriverTime);
  for (int attempt = 1; !restored && attempt < kAttempts; ++attempt) {
    const ErrorCode code = restored.error().code();
    if (code != ErrorCode::kUnavailable && code != ErrorCode::kTimedOut) break;
    auto state = co_await context_.contexts.state(pid_);  // queries the next helper once that helper has
                                                          // started
    if (!state) continue;
    if (*state != context::ProcessState::kCheckpointed) {
      if (*state == context::ProcessState::kFailed) break;
      co_return ok();
    }
    restored = co_await context_.contexts.restore(pid_, pairs, kDriverTime);
  }
  co_return restored;
}

Task<Result<void>> SavedContext::unlock() {
  if (state_ == context::ProcessState::kRunning) co_return ok();
  auto unlocked = co_await context_.contexts.unlock(pid_, kDriverTime);
  for (int attempt = 1; !unlocked && attempt < kAttempts; ++attempt) {
    auto state = co_await context_.contexts.state(pid_);  // queries the next helper once that helper has
                                                          // started
    if (!state) continue;
    state_ = *state;
    if (state_ == context::ProcessState::kRunning) co_return ok();
    unlocked = co_await context_.contexts.unlock(pid_, kDriverTime);
  }
  if (!unlocked) co_return std::move(unlocked).error();
  state_ = context::ProcessState::kRunning;
  co_return ok();
}

}  // namespace ckpt::agent
