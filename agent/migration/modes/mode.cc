// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/mode.h"

#include "agent/migration/modes/adopted_mode.h"
#include "agent/migration/modes/cooperative_mode.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/migration/modes/swap_mode.h"

namespace ckpt::agent {
PauseWork common_work(PauseKind kind) {
  PauseWork work(kind);
  for (const PauseTerm term :
       {PauseTerm::kQuiesce, PauseTerm::kVerify, PauseTerm::kCommit, PauseTerm::kMap, PauseTerm::kResume})
    work.add(term);
  return work;
}

JobRecord standby_record(const JobOperation& operation) {
  JobRecord record;
  record.spec = operation.spec();
  record.spec.incarnation = operation.next();
  record.spec.ranks = operation.target_ranks();
  if (!operation.new_argv().empty()) {
    record.spec.argv = operation.new_argv();
    record.allowed_differences = operation.allowed_differences();
  }
  record.role = wire::JobRole::kStandby;
  record.incarnation = operation.next();
  record.migration = operation.number();
  record.started_unix_ms = wall_clock_ms();
  return record;
}

PauseLines pause_lines(MigrationContext& context, PauseKind kind) {
  if (const RemapFacts* tried = context.remap.context_times())
    context.pauses->record_context(tried->save_ns, tried->restore_ns);
  return context.pauses->costs().lines(kind);
}

Task<Result<void>> TargetMode::compare(wire::Bytes) {
  co_return ok();
}

Task<Result<void>> TargetMode::drop_memory(std::shared_ptr<Job>, std::vector<std::uint64_t>) {
  co_return ok();
}

Task<Result<void>> TargetMode::enter_gate(std::shared_ptr<Job>, wire::Incarnation, std::uint64_t) {
  co_return Error(ErrorCode::kNotSupported, "Ranks move in cooperative mode only");
}

Task<Result<std::shared_ptr<Job>>> TargetMode::bring() {
  co_return Error(ErrorCode::kAborted, "The instance at the target has exited");
}

std::unique_ptr<SourceMode> make_source_mode(MigrationContext& context, JobOperation operation) {
  switch (operation.pause_kind()) {
    case PauseKind::kSwap:
      return std::make_unique<SwapSource>(context, std::move(operation));
    case PauseKind::kProcess:
      return std::make_unique<ProcessSource>(context, std::move(operation));
    case PauseKind::kAdoptedSwap:
    case PauseKind::kAdoptedProcess:
      return std::make_unique<AdoptedSource>(context, std::move(operation));
    case PauseKind::kInvalid:
    case PauseKind::kCooperative:
      break;
  }
  return std::make_unique<CooperativeSource>(std::move(operation));
}

std::unique_ptr<TargetMode> make_target_mode(MigrationContext& context, JobOperation operation) {
  switch (operation.pause_kind()) {
    case PauseKind::kSwap:
      return std::make_unique<SwapTarget>(context, std::move(operation));
    case PauseKind::kProcess:
      return std::make_unique<ProcessTarget>(context, std::move(operation));
    case PauseKind::kAdoptedSwap:
    case PauseKind::kAdoptedProcess:
      return std::make_unique<AdoptedTarget>(context, std::move(operation));
    case PauseKind::kInvalid:
    case PauseKind::kCooperative:
      break;
  }
  return std::make_unique<CooperativeTarget>(context, std::move(operation));
}

}  // namespace ckpt::agent
