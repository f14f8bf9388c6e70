// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/job_operation.h"

#include <algorithm>

#include "agent/jobs/job_record.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/migration_mode.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {
namespace {

constexpr wire::MigrationId kRestoreBit = wire::MigrationId{1} << 63;

PauseKind pause_kind_of(MigrationMode mode, bool within_node) {
  switch (mode) {
    case MigrationMode::kTransparent:
      return within_node ? PauseKind::kSwap : PauseKind::kProcess;
    case MigrationMode::kAdopted:
      return within_node ? PauseKind::kAdoptedSwap : PauseKind::kAdoptedProcess;
    default:
      return PauseKind::kCooperative;
  }
}

// Returns a number that is later than the numbers of earlier agents.
wire::MigrationId next_restore_number() {
  static std::uint64_t last = 0;  // number returned last; used on the event loop only
  last = std::max<std::uint64_t>(last + 1, static_cast<std::uint64_t>(wall_clock_ms()));
  return kRestoreBit | last;
}

Result<std::uint32_t> first_gpu(const std::vector<wire::RankSpec>& ranks) {
  if (ranks.empty()) return Error(ErrorCode::kNotFound, "The GPU of the job's ranks is not known");
  return gpu_of(ranks);
}

}  // namespace

JobOperation JobOperation::migration(const migration::HandoverInfo& info) {
  JobOperation made(Kind::kMigration, info.migration, info.job, info.base);
  auto plan = wire::decode_plan(info.plan);
  if (!plan) return made;
  wire::MigrationPlan& known = *plan;
  made.pause_kind_ = pause_kind_of(known.spec.mode, wire::is_swap(known));
  made.copies_ahead_ = known.options.strategy == wire::MigrateStrategy::kLive;
  if (known.options.if_not_converged == wire::NotConverged::kAbort)
    made.pause_limit_ = known.options.max_downtime_ns;
  made.spec_ = std::move(known.spec);
  made.target_ranks_ = std::move(known.target_ranks);
  made.new_argv_ = std::move(known.options.new_argv);
  made.allowed_differences_ = known.options.allowed_differences;
  if (known.options.communicators == wire::Communicators::kInPause)
    made.communicators_ = known.communicators_ns;
  return made;
}

JobOperation JobOperation::snapshot(const wire::JobSpec& spec, wire::Incarnation incarnation) {
  JobOperation made(Kind::kSnapshot, 0, spec.job, incarnation);
  made.pause_kind_ = pause_kind_of(spec.mode, false);
  made.spec_ = spec;
  return made;
}

JobOperation JobOperation::checked(const wire::JobSpec& spec, wire::Incarnation incarnation,
                                   bool leaves_node) {
  JobOperation made = snapshot(spec, incarnation);
  made.pause_kind_ = pause_kind_of(spec.mode, !leaves_node);
  return made;
}

JobOperation JobOperation::restore(const wire::JobSpec& spec) {
  JobOperation made(Kind::kRestore, next_restore_number(), spec.job, spec.incarnation - 1);
  made.pause_kind_ = pause_kind_of(spec.mode, false);
  made.spec_ = spec;
  made.target_ranks_ = spec.ranks;
  return made;
}

std::string JobOperation::name() const {
  switch (kind_) {
    case Kind::kMigration:
      return wire::migration_text(number_);
    case Kind::kSnapshot:
      return "snapshot";
    case Kind::kRestore:
      return "restore-" + std::to_string(number_ & ~kRestoreBit);
  }
  return {};
}

Result<std::uint32_t> JobOperation::source_gpu() const {
  return first_gpu(spec_.ranks);
}

Result<std::uint32_t> JobOperation::target_gpu() const {
  return first_gpu(target_ranks_);
}

}  // namespace ckpt::agent
