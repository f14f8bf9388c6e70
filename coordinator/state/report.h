// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a migration's final report: both sides' clocks brought together, the downtime split along
// the critical path, the bound and what binds it. Pure functions; spans in milliseconds, as the report shows
// them.
#pragma once

#include <optional>
#include <string_view>

#include "coordinator/state/model.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

// The pieces follow one another and add up to total() exactly.
struct Downtime {
  double quiesce = 0;  // barrier entry -> paused at the source's mover
  double final_copy = 0;
  double verify = 0;
  double communicators = 0;  // of ranks that move, where they are made in the pause
  double commit = 0;
  double context = 0;  // the driver's own checkpoint and restore; 0 in cooperative mode
  double host = 0;     // dump and restore of the process; 0 in cooperative mode and in a swap
  double fill =
      0;  // of memory that the process has made itself at the target; 0 where it took what had arrived
  double restore = 0;  // of the rest: host state of the program, memory at its addresses
  double resume = 0;
  [[nodiscard]] double total() const {
    return quiesce + final_copy + verify + communicators + commit + context + host + fill + restore + resume;
  }
};

// nullopt if a side did not reach its points. Clock error may put a point before the one it follows: it is
// then taken to be at the same time, so no piece is negative; the end points, which the job itself sees, are
// never moved by that.
[[nodiscard]] std::optional<Downtime> compute_downtime(const wire::SourceReport& source,
                                                       const wire::TargetReport& target);

// The same pause by the estimate's terms, for the job's next one, but for communicators that were made in it.
// nullopt where the source did not report the sizes behind its terms.
[[nodiscard]] std::optional<wire::PauseFacts> pause_of(const wire::SourceReport& source,
                                                       const Downtime& downtime);
// The estimate's terms under the names of the breakdown.
[[nodiscard]] Downtime breakdown_of(const wire::PauseFacts& pause);

// The time of a rank that moved with others, from the order to stop at a barrier until it stood there.
// nullopt: it did not stand there, or its node has an older version.
[[nodiscard]] std::optional<double> to_barrier_ms(const Migration& rank);

struct Bound {
  double ms = 0;
  std::string_view by;  // the largest term: quiesce, scan, link, host_read, commit, host_write, resume
};
// quiesce + max(state / scan rate, bytes of the final round and host memory / link rate, host memory / read
// rate) + commit + host memory / write rate + resume, with rates that were measured beside the move: the
// source's mover's, and those of host memory that each node found. One that is not known asks for no time.
// The target's scan rate is that of the very scan the pause waited for: a bound from it would call any
// slowness of it necessary.
[[nodiscard]] std::optional<Bound> compute_bound(const wire::SourceReport& source,
                                                 const wire::TargetReport& target, const Downtime& downtime);

}  // namespace ckpt::coordinator
