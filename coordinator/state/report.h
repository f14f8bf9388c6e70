// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a migration's final report. It aligns both sides' clocks, splits the downtime along the
// critical path, and computes the lower bound and its largest term. Pure functions; spans are in
// milliseconds, as in the report.
#pragma once

#include <optional>
#include <string_view>

#include "coordinator/state/model.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

// The pieces of a downtime. They follow one another and add up to total() exactly.
struct Downtime {
  double quiesce = 0;  // the time from the entry into the barrier until the source's mover begins the pause
  double final_copy = 0;
  double verify = 0;
  double communicators = 0;  // time for making communicators of moving ranks, if they are made in the pause
  double commit = 0;
  double context = 0;  // the driver's own checkpoint and restore; 0 in cooperative mode
  double host = 0;     // dump and restore of the process; 0 in cooperative mode and in a swap
  double fill = 0;     // time to fill memory that the process allocated at the target;
                       // 0 if the process used memory that had arrived
  double restore = 0;  // time to restore the rest: host state of the program, and memory at its addresses
  double resume = 0;
  [[nodiscard]] double total() const {
    return quiesce + final_copy + verify + communicators + commit + context + host + fill + restore + resume;
  }
};

// Splits the downtime. Returns nullopt if a side did not reach its points. A clock error may place a point
// before its predecessor. Both are then taken as simultaneous, so no piece is negative. The end points, which
// the job itself observes, are never changed by this.
[[nodiscard]] std::optional<Downtime> compute_downtime(const wire::SourceReport& source,
                                                       const wire::TargetReport& target);

// Returns the same pause split by the estimate's terms, for the estimate of the job's next move. The time for
// communicators that were made in the pause is left out. Returns nullopt if the source did not report the
// sizes behind its terms.
[[nodiscard]] std::optional<wire::PauseFacts> pause_of(const wire::SourceReport& source,
                                                       const Downtime& downtime);
// Returns the breakdown of a pause that is split by the estimate's terms.
[[nodiscard]] Downtime breakdown_of(const wire::PauseFacts& pause);

// Returns a time of a rank that moved with others, in milliseconds: from the order to stop at a barrier until
// it reached the barrier. Returns nullopt if the rank did not reach it, or its node has an older version.
[[nodiscard]] std::optional<double> to_barrier_ms(const Migration& rank);

struct Bound {
  double ms = 0;
  std::string_view by;  // the largest term of the bound: quiesce, scan, link, host_read, commit, host_write
                        // or resume
};
// Computes quiesce + max(state / scan rate, bytes of the final round and host memory / link rate, host memory
// / read rate) + commit + host memory / write rate + resume. The rates were measured alongside the move: the
// scan and link rates by the source's mover, and those of host memory by each node. Returns nullopt without a
// scan or link rate. An unknown rate of host memory adds no time. The target's scan rate is not used, because
// it was measured in the scan for which the pause waited. A bound from it would treat any slowness of that
// scan as necessary.
[[nodiscard]] std::optional<Bound> compute_bound(const wire::SourceReport& source,
                                                 const wire::TargetReport& target, const Downtime& downtime);

}  // namespace ckpt::coordinator
