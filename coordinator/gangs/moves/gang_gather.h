// SPDX-License-Identifier: Apache-2.0
// Holds all ranks of a move at one step (GANG-1), by orders to their nodes:
//
//   GatherRank(ready), answered once the rank has copied what it can while it runs -> GatherRank(stop at) until all
//   have promised one barrier -> GatherRank(pause at) that barrier
//
// Ranks that an earlier coordinator has paused are held at the barrier agreed on at that time. The other
// ranks are then paused at the same barrier.
#pragma once

#include <chrono>
#include <memory>

#include "coordinator/gangs/rank_orders.h"

namespace ckpt::coordinator {

// Returns when all ranks have received the barrier where they pause. `longest` limits the time until all are
// ready. Errors: those of RankOrders; kProtocol if ranks are held at different barriers; kAborted if no rank
// knows the barrier.
control::Task<Result<void>> hold_at_one_step(std::shared_ptr<RankOrders> ranks,
                                             std::chrono::milliseconds longest);

}  // namespace ckpt::coordinator
