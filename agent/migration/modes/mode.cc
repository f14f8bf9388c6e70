// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/mode.h"

#include "agent/migration/modes/adopted_mode.h"
#include "agent/migration/modes/cooperative_mode.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/migration/modes/swap_mode.h"

namespace ckpt::agent {
PauseKind pause_kind(const migration::SwitchInfo& info) {
  const auto plan = wire::decode_plan(info.plan);
  if (!plan || plan.assume_value().spec.way == wire::Way::kCooperative) return PauseKind::kCooperative;
  const bool swap = wire::is_swap(plan.assume_value());
  if (plan.assume_value().spec.way == wire::Way::kAdopted)
    return swap ? PauseKind::kAdoptedSwap : PauseKind::kAdoptedProcess;
  return swap ? PauseKind::kSwap : PauseKind::kProcess;
}

PauseWork common_work(PauseKind kind) {
  PauseWork work(kind);
  for (const PauseTerm term :
       {PauseTerm::kQuiesce, PauseTerm::kVerify, PauseTerm::kCommit, PauseTerm::kMap, PauseTerm::kResume})
    work.add(term);
  return work;
}

PauseLines pause_lines(MigrationContext& context, PauseKind kind) {
  if (const RemapFacts* tried = context.remap.context_times())
    context.pauses->keep_context(tried->save_ns, tried->restore_ns);
  return context.pauses->costs().lines(kind);
}

Task<Result<void>> TargetMode::compare(wire::Bytes) {
  co_return ok();
}

Task<Result<void>> TargetMode::drop_memory(std::shared_ptr<Job>, std::vector<std::uint64_t>) {
  co_return ok();
}

Task<Result<std::shared_ptr<Job>>> TargetMode::bring() {
  co_return Error(ErrorCode::kAborted, "The instance at the target has ended");
}

std::unique_ptr<SourceMode> make_source_mode(MigrationContext& context, const migration::SwitchInfo& info) {
  switch (pause_kind(info)) {
    case PauseKind::kSwap:
      return std::make_unique<SwapSource>(context, info);
    case PauseKind::kProcess:
      return std::make_unique<ProcessSource>(context, info);
    case PauseKind::kAdoptedSwap:
      return std::make_unique<AdoptedSource>(context, info, true);
    case PauseKind::kAdoptedProcess:
      return std::make_unique<AdoptedSource>(context, info, false);
    case PauseKind::kInvalid:
    case PauseKind::kCooperative:
      break;
  }
  return std::make_unique<CooperativeSource>();
}

std::unique_ptr<TargetMode> make_target_mode(MigrationContext& context, const migration::SwitchInfo& info) {
  switch (pause_kind(info)) {
    case PauseKind::kSwap:
      return std::make_unique<SwapTarget>(context, info);
    case PauseKind::kProcess:
      return std::make_unique<ProcessTarget>(context, info);
    case PauseKind::kAdoptedSwap:
      return std::make_unique<AdoptedTarget>(context, info, true);
    case PauseKind::kAdoptedProcess:
      return std::make_unique<AdoptedTarget>(context, info, false);
    case PauseKind::kInvalid:
    case PauseKind::kCooperative:
      break;
  }
  return std::make_unique<CooperativeTarget>(context, info);
}

}  // namespace ckpt::agent
