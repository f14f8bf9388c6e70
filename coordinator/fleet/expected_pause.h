// SPDX-License-Identifier: Apache-2.0
// How long a move would pause a job, before a move is requested. It is the usual pause of its last moves in
// the same mode. Else its node estimates it from sizes and its own rates (agent/migration/pause_forecast.h).
// Pure but for reading the table.
#pragma once

#include <optional>

#include "coordinator/fleet/nodes.h"
#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct ExpectedPause {
  double ms = 0;
  bool is_estimate = false;  // it has not moved so yet
};
// `within_node`: to another GPU of the node it is on.
[[nodiscard]] std::optional<ExpectedPause> expected_pause(const Job& job, const NodeTable& nodes,
                                                          bool within_node);

}  // namespace ckpt::coordinator
