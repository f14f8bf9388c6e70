// SPDX-License-Identifier: Apache-2.0
// The operation that a migration mode (mode.h) serves: a migration of a job, a snapshot of it, or a restore
// of it. A snapshot is a source half without a target, a restore a target half without a source.
//
// Names in memory and on the disk contain name(). A job has one snapshot at a time, always of the same name.
// So the next one finds what an agent left that died in it. No two migrations or restores share a name.
//
// Messages and records that have 64 bits for an operation carry number(). These are JobRecord::migration,
// with it the instance's folder, and the keeper's Deposit, Withdraw, WithdrawRegions, Replace, Fetch and Map.
// A migration has its coordinator's id, a positive int64 (libckpt/protocol/wire/ids.h). A restore has a
// number with the highest bit set. A snapshot has 0, since it starts no instance and has only the set
// `exported`.
//
// Threads: values; restore() on the event loop. Errors: kNotFound for a place that the plan does not name.
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

  // A plan that cannot be read counts as cooperative: only the outcome of such a migration is known.
  static JobOperation migration(const migration::SwitchInfo& info);
  // Makes a snapshot of the running instance: `spec` is from its start, and it runs as `incarnation`.
  static JobOperation snapshot(const wire::JobSpec& spec, wire::Incarnation incarnation);
  // Makes a move that is only checked: it has no target, and no id.
  static JobOperation checked(const wire::JobSpec& spec, wire::Incarnation incarnation, bool leaves_node);
  // Makes a restore into a new instance. Each call makes another operation.
  static JobOperation restore(const wire::JobSpec& spec);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] std::string name() const;
  [[nodiscard]] wire::MigrationId number() const noexcept { return number_; }
  [[nodiscard]] wire::JobId job() const noexcept { return job_; }
  // The incarnation that the source runs as; the target's is the next one.
  [[nodiscard]] wire::Incarnation base() const noexcept { return base_; }
  [[nodiscard]] wire::Incarnation next() const noexcept { return base_ + 1; }
  [[nodiscard]] PauseKind pause_kind() const noexcept { return pause_kind_; }
  // Returns the limit at which a migration ends its pause; nothing: there is none.
  [[nodiscard]] std::optional<Nanos> pause_limit() const noexcept { return pause_limit_; }
  // True for a live migration: memory is copied while the job runs.
  [[nodiscard]] bool copies_ahead() const noexcept { return copies_ahead_; }
  [[nodiscard]] const wire::JobSpec& spec() const noexcept { return spec_; }
  // The standby's command where it is a new program, and how its names may differ (wire::kAllow...).
  [[nodiscard]] const std::vector<std::string>& new_argv() const noexcept { return new_argv_; }
  [[nodiscard]] std::uint8_t allowed_differences() const noexcept { return allowed_differences_; }
  // The expected time to make communicators in the pause, 0 if not known; nullopt: none are made in it.
  [[nodiscard]] std::optional<Nanos> communicators() const noexcept { return communicators_; }
  [[nodiscard]] const std::vector<wire::RankSpec>& target_ranks() const noexcept { return target_ranks_; }
  // Indices on their nodes.
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
