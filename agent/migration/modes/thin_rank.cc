// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/thin_rank.h"

#include <spdlog/spdlog.h>

#include "agent/host_process/processes/time_limit.h"
#include "agent/migration/modes/saved_context.h"
#include "agent/migration/modes/tree_work.h"
#include "agent/mover_client/memory_fill.h"
#include "libckpt/base/fault.h"

namespace ckpt::agent {
namespace {

// Handles one rank during one call of save_context() or place_context().
class Placing {
 public:
  Placing(MigrationContext& context, std::shared_ptr<Job> job, std::shared_ptr<KeeperLink> keeper)
      : context_(context), job_(std::move(job)), keeper_(std::move(keeper)) {}

  Task<Result<void>> inspect() {
    CKPT_CO_TRY(status, co_await keeper_->attach());
    if (status.session_pid == 0) co_return Error(ErrorCode::kRefused, "No process of the job uses a GPU");
    pid_ = static_cast<pid_t>(status.session_pid);
    const Milliseconds limit = co_await time_limit_of(context_, pid_);
    step_time_ = limit + host::time_limit(job_->summary().state_bytes, Milliseconds(0));
    CKPT_CO_TRY(state, co_await context_.contexts.state(pid_));
    memory_ = status.memory;
    state_ = state;
    CKPT_CO_TRY(own, co_await gpu_of_context(context_, job_, state_));
    on_ = own;
    co_return ok();
  }

  [[nodiscard]] bool is_whole_on(const GpuUuid& gpu) const {
    return memory_ == local::MemoryState::kMapped && state_ == context::ProcessState::kRunning && on_ == gpu;
  }

  Task<Result<void>> release() {
    if (memory_ == local::MemoryState::kReleased) co_return ok();
    CKPT_CO_TRYV(co_await keeper_->release(step_time_));
    memory_ = local::MemoryState::kReleased;
    co_return ok();
  }

  // Checks whether the context was restored. A driver may then refuse to import memory.
  [[nodiscard]] bool was_restored() const { return !job_->record().context_gpu.empty(); }

  Task<Result<void>> save() {
    if (state_ == context::ProcessState::kRunning) {
      CKPT_CO_TRYV(co_await context_.contexts.lock(pid_, step_time_));
      state_ = context::ProcessState::kLocked;
    }
    if (state_ == context::ProcessState::kLocked) {
      CKPT_CO_TRYV(co_await context_.contexts.checkpoint(pid_, step_time_));
      state_ = context::ProcessState::kCheckpointed;
    }
    if (state_ != context::ProcessState::kCheckpointed)
      co_return Error(ErrorCode::kDevice,
                      "The driver has lost the context of process " + std::to_string(pid_));
    co_return ok();
  }

  // Restores a saved context on `gpu`. A context on another GPU is saved first.
  Task<Result<void>> restore(GpuUuid gpu) {
    if (on_ != gpu) {
      CKPT_CO_TRYV(co_await save());
    }
    if (state_ == context::ProcessState::kCheckpointed) {
      CKPT_CO_TRYV(co_await job_->set_context_location(to_text(on_), to_text(gpu)));
      std::vector<context::GpuPair> pairs;
      if (on_ != gpu) pairs.push_back(context::GpuPair{on_, gpu});
      CKPT_CO_TRYV(co_await context_.contexts.restore(pid_, std::move(pairs), step_time_));
      fault_point(FaultPoint::kTargetContextRestored);
      CKPT_CO_TRYV(co_await job_->set_context_location(to_text(gpu), ""));
      state_ = context::ProcessState::kLocked;
      on_ = gpu;
    }
    if (state_ == context::ProcessState::kLocked) {
      CKPT_CO_TRYV(co_await context_.contexts.unlock(pid_, step_time_));
      state_ = context::ProcessState::kRunning;
    }
    co_return ok();
  }

  Task<Result<void>> map(local::GpuIdentity gpu, MemoryChoice memory) {
    local::Map order;
    order.set = memory.set;
    order.migration = memory.migration;
    order.gpu_count = 1;
    order.gpus[0] = gpu;
    CKPT_CO_TRYV(co_await keeper_->map(order, step_time_));
    co_return ok();
  }

  // Gives the rank its own memory with the same content.
  Task<Result<void>> fill(GpuUuid gpu, MemoryChoice memory) {
    CKPT_CO_TRY(mover, mover_on(gpu));
    FillOrder order(keeper_, mover);
    order.set = memory.set;
    order.migration = memory.migration;
    order.timeout = step_time_;
    co_return co_await fill_memory(context_.executor, std::move(order));
  }

 private:
  Result<std::shared_ptr<MoverProcess>> mover_on(const GpuUuid& gpu) const {
    for (std::uint32_t index = 0;; ++index) {
      CKPT_TRY(identity, context_.gpus.identity_of(index));
      if (identity.uuid == gpu) return context_.gpus.mover_of(index);
    }
  }

  MigrationContext& context_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<KeeperLink> keeper_;
  pid_t pid_ = 0;
  // The time limit of each step. In that time the driver unmaps, saves and restores, and works on pages of
  // the process. A thin context takes at most a second.
  Milliseconds step_time_ = host::kStuckAfter;
  local::MemoryState memory_ = local::MemoryState::kMapped;
  context::ProcessState state_ = context::ProcessState::kRunning;
  GpuUuid on_{};
};

Result<std::shared_ptr<KeeperLink>> keeper_of(const Job& job) {
  auto keeper = job.keeper();
  if (job.ended() || !keeper) return Error(ErrorCode::kUnavailable, "The job's process has exited");
  return keeper;
}

}  // namespace

Task<Result<void>> save_context(MigrationContext& context, std::shared_ptr<Job> job) {
  const AsyncMutex::Held turn = co_await job->release_mutex().acquire();
  CKPT_CO_TRY(keeper, keeper_of(*job));
  Placing rank(context, job, keeper);
  CKPT_CO_TRYV(co_await rank.inspect());
  CKPT_CO_TRYV(co_await rank.release());
  fault_point(FaultPoint::kSourceMemoryReleased);
  CKPT_CO_TRYV(co_await rank.save());
  fault_point(FaultPoint::kSourceContextSaved);
  co_return ok();
}

// Gives memory to a rank that has none, by the method that this driver supports. If the call fails before its
// end, the next Release repairs the rank's memory.
Task<Result<void>> give_memory(MigrationContext& context, Placing& rank, local::GpuIdentity gpu,
                               MemoryChoice memory, RestoreTimings& placed) {
  if (!rank.was_restored() || context.remap.imports()) {
    auto mapped = co_await rank.map(gpu, memory);
    // A return to the source tries both methods, because the rank can continue at no other place.
    const bool may_make =
        rank.was_restored() && (context.remap.is_free() || memory.set == local::MemorySet::kExported);
    if (mapped || !may_make || mapped.error().code() == ErrorCode::kUnavailable) co_return mapped;
    spdlog::warn("memory not imported, so the process creates its own: reason {}",
                 mapped.error().to_string());
  }
  CKPT_CO_TRYV(co_await rank.fill(gpu.uuid, memory));
  placed.filled_ns = now_ns();
  co_return co_await rank.map(gpu, MemoryChoice(local::MemorySet::kMade, 0));
}

Task<Result<RestoreTimings>> place_context(MigrationContext& context, std::shared_ptr<Job> job,
                                           local::GpuIdentity gpu, MemoryChoice memory) {
  const AsyncMutex::Held turn = co_await job->release_mutex().acquire();
  CKPT_CO_TRY(keeper, keeper_of(*job));
  Placing rank(context, job, keeper);
  CKPT_CO_TRYV(co_await rank.inspect());
  RestoreTimings placed;
  if (rank.is_whole_on(gpu.uuid)) co_return placed;
  CKPT_CO_TRYV(co_await rank.release());
  CKPT_CO_TRYV(co_await rank.restore(gpu.uuid));
  placed.restored_ns = now_ns();
  fault_point(FaultPoint::kTargetContextPlaced);
  CKPT_CO_TRYV(co_await give_memory(context, rank, gpu, memory, placed));
  fault_point(FaultPoint::kTargetMemoryMapped);
  co_return placed;
}

}  // namespace ckpt::agent
