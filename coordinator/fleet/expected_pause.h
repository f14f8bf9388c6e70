// SPDX-License-Identifier: Apache-2.0
// The expected pause of a move, before the move is requested. It is the usual pause of the job's last moves
// in the same mode. Without such moves, the node estimates the pause from sizes and its own rates
// (agent/migration/pause_forecast.h). Pure except for reading the table.
#pragma once

#include <optional>

#include "coordinator/fleet/nodes.h"
#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct ExpectedPause {
  double ms = 0;
  bool is_estimate = false;  // true if the job has not yet moved in this mode
};
// Returns the expected pause of the job's next move. `within_node` means a move to another GPU of the job's
// current node.
[[nodiscard]] std::optional<ExpectedPause> expected_pause(const Job& job, const NodeTable& nodes,
                                                          bool within_node);

}  // namespace ckpt::coordinator
