// SPDX-License-Identifier: Apache-2.0
// The limit of one migration's pause at its source, and the estimate of that pause (pause_estimate.h).
// Threads: the event loop. Ownership: the context outlives it. Errors: none.
#pragma once

#include <optional>
#include <vector>

#include "agent/migration/modes/migration_context.h"
#include "agent/pauses/pause_estimate.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

class PauseBudget {
 public:
  explicit PauseBudget(MigrationContext& context) : context_(context) {}

  // The plan's options.
  void set_options(const wire::MigrateOptions& options) { options_ = options; }
  // Where this agent prepared the migration. Without it there is no estimate.
  void set_work(PauseWork work, std::optional<wire::PauseFacts> last_pause);
  // Makes the estimate. `target`: the target's own lines.
  void estimate(const std::vector<wire::CostLine>& target);
  // The same once the mode knows more of it. The mover goes on with what it was told.
  void revise(PauseWork work);
  // `set`, which may come before the plan; negative: unchanged.
  void set_limits(std::int64_t max_downtime_ns, std::int64_t bandwidth);

  [[nodiscard]] Nanos limit() const;
  // Rather than pass the limit.
  [[nodiscard]] bool gives_up() const;
  [[nodiscard]] bool is_exceeded() const { return gives_up() && estimate_.total() > limit(); }
  // The plan's options under the present limits.
  [[nodiscard]] wire::MigrateOptions options() const;
  [[nodiscard]] bool has_work() const noexcept { return work_.has_value(); }
  [[nodiscard]] const PauseEstimate& estimated() const noexcept { return estimate_; }
  // The estimate with the copy of device memory. `whole`: the mover's estimate of the pause.
  [[nodiscard]] wire::PauseFacts with_copy(Nanos whole) const { return estimate_.with_copy(whole, told_); }
  // After the pause: the node's costs (pause_costs.h) learn from its report.
  void learn(const wire::SourceReport& report, Nanos verified_received_ns);

 private:
  void make_estimate();

  MigrationContext& context_;
  wire::MigrateOptions options_;
  std::optional<PauseWork> work_;
  std::optional<wire::PauseFacts> last_pause_;
  std::vector<wire::CostLine> target_;
  PauseEstimate estimate_;
  PauseEstimate told_;  // to the mover
  std::optional<std::int64_t> set_max_downtime_ns_;
  std::optional<std::uint64_t> set_bandwidth_;
};

}  // namespace ckpt::agent
