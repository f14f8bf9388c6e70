// SPDX-License-Identifier: Apache-2.0
// The operation that a migration mode (mode.h) serves: a migration, a snapshot or a restore of a job. A
// snapshot is a source half without a target. A restore is a target half without a source.
//
// Names in memory and on the disk contain name(). A job has one snapshot at a time, always with the same
// name. Therefore the next snapshot finds the remains of an agent that exited during a snapshot. No two
// migrations or restores share a name.
//
// Messages and records with 64 bits for an operation contain number(). These are JobRecord::migration (and
// with it the instance's folder) and the keeper's Deposit, Withdraw, WithdrawRegions, Replace, Fetch and Map.
// A migration has its coordinator's id, a positive int64 (libckpt/protocol/wire/ids.h). A restore has a
// number with the highest bit set. A snapshot has 0, because it starts no instance and has only the set
// `exported`.
//
// Threads: plain values. restore() runs on the event loop. Errors: kNotFound for a place that the plan does
// not name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/pauses/pause_estimate.h"
#include "libckpt/base/result.h"
#include "libckpt/protocol/handover/records.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

class JobOperation {
 public:
  enum class Kind : std::uint8_t { kMigration, kSnapshot, kRestore };

  // Creates the operation of a migration. An unreadable plan counts as cooperative, because only the outcome
  // of such a migration is known.
  static JobOperation migration(const migration::HandoverInfo& info);
  // Creates a snapshot of the running instance. `spec` is from the start of the instance, which runs as
  // `incarnation`.
  static JobOperation snapshot(const wire::JobSpec& spec, wire::Incarnation incarnation);
  // Creates a move that is only checked, without a target and without an id.
  static JobOperation checked(const wire::JobSpec& spec, wire::Incarnation incarnation, bool leaves_node);
  // Creates a restore into a new instance. Each call creates an operation with a different number.
  static JobOperation restore(const wire::JobSpec& spec);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] std::string name() const;
  [[nodiscard]] wire::MigrationId number() const noexcept { return number_; }
  [[nodiscard]] wire::JobId job() const noexcept { return job_; }
  // Returns the incarnation that the source runs as. The target's incarnation is the next one.
  [[nodiscard]] wire::Incarnation base() const noexcept { return base_; }
  [[nodiscard]] wire::Incarnation next() const noexcept { return base_ + 1; }
  [[nodiscard]] PauseKind pause_kind() const noexcept { return pause_kind_; }
  // Returns the limit at which a migration ends its pause. Returns nothing if there is no limit.
  [[nodiscard]] std::optional<Nanos> pause_limit() const noexcept { return pause_limit_; }
  // Returns true for a live migration, which copies memory while the job runs.
  [[nodiscard]] bool copies_ahead() const noexcept { return copies_ahead_; }
  [[nodiscard]] const wire::JobSpec& spec() const noexcept { return spec_; }
  // Returns the standby's command if the standby runs a new program. allowed_differences() returns how the
  // program's names may differ (wire::kAllow...).
  [[nodiscard]] const std::vector<std::string>& new_argv() const noexcept { return new_argv_; }
  [[nodiscard]] std::uint8_t allowed_differences() const noexcept { return allowed_differences_; }
  // Returns the expected time to create communicators in the pause, or 0 if unknown. Returns nullopt if none
  // are created in the pause.
  [[nodiscard]] std::optional<Nanos> communicators() const noexcept { return communicators_; }
  [[nodiscard]] const std::vector<wire::RankSpec>& target_ranks() const noexcept { return target_ranks_; }
  // Returns the index of the GPU on its node.
  [[nodiscard]] Result<std::uint32_t> source_gpu() const;
  [[nodiscard]] Result<std::uint32_t> target_gpu() const;

 private:
  JobOperation(Kind kind, wire::MigrationId number, wire::JobId job, wire::Incarnation base)
      : kind_(kind), number_(number), job_(job), base_(base) {}

  Kind kind_;
  wire::MigrationId number_;
  wire::JobId job_;
  wire::Incarnation base_;
  PauseKind pause_kind_ = PauseKind::kCooperative;
  bool copies_ahead_ = false;
  std::optional<Nanos> pause_limit_;
  wire::JobSpec spec_;
  std::vector<wire::RankSpec> target_ranks_;
  std::vector<std::string> new_argv_;
  std::uint8_t allowed_differences_ = 0;
  std::optional<Nanos> communicators_;
};

}  // namespace ckpt::agent
