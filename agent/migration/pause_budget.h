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

  // Sets the plan's options.
  void set_options(const wire::MigrateOptions& options) { options_ = options; }
  // Sets the work if this agent prepared the migration. Without the work there is no estimate.
  void set_work(PauseWork work, std::optional<wire::PauseFacts> last_pause);
  // Computes the estimate. `target` contains the target's own cost lines.
  void estimate(const std::vector<wire::CostLine>& target);
  // Computes the estimate again when the mode has more facts. The mover keeps the first estimate.
  void revise(PauseWork work);
  // Sets limits from the command `set`, which may arrive before the plan. A negative value leaves a limit
  // unchanged.
  void set_limits(std::int64_t max_downtime_ns, std::int64_t bandwidth);

  [[nodiscard]] Nanos limit() const;
  // Checks whether the migration is aborted when it would exceed the limit.
  [[nodiscard]] bool gives_up() const;
  [[nodiscard]] bool is_exceeded() const { return gives_up() && estimate_.total() > limit(); }
  // Returns the plan's options with the current limits.
  [[nodiscard]] wire::MigrateOptions options() const;
  [[nodiscard]] bool has_work() const noexcept { return work_.has_value(); }
  [[nodiscard]] const PauseEstimate& estimated() const noexcept { return estimate_; }
  // Returns the estimate with the copy of device memory. `whole` is the mover's estimate of the pause.
  [[nodiscard]] wire::PauseFacts with_copy(Nanos whole) const {
    return estimate_.with_copy(whole, reported_);
  }
  // Updates the node's costs (pause_costs.h) from the report, after the pause.
  void learn(const wire::SourceReport& report, Nanos verified_received_ns);

 private:
  void make_estimate();

  MigrationContext& context_;
  wire::MigrateOptions options_;
  std::optional<PauseWork> work_;
  std::optional<wire::PauseFacts> last_pause_;
  std::vector<wire::CostLine> target_;
  PauseEstimate estimate_;
  PauseEstimate reported_;  // the estimate that was sent to the mover
  std::optional<std::int64_t> set_max_downtime_ns_;
  std::optional<std::uint64_t> set_bandwidth_;
};

}  // namespace ckpt::agent
