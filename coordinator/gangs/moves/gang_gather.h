// SPDX-License-Identifier: Apache-2.0
// Holds all ranks of a move at one step (GANG-1), by orders to their nodes:
//
//   GatherRank(ready), answered once the rank has copied what it can while it runs -> GatherRank(stop at) until all
//   have promised one barrier -> GatherRank(pause at) that barrier
//
// Ranks that a coordinator before this one has paused stand at the barrier that was agreed on then: the others are
// paused there, too.
#pragma once

#include <chrono>
#include <memory>

#include "coordinator/gangs/rank_orders.h"

namespace ckpt::coordinator {

// Returns when all have been told where they are paused. `longest`: until all are ready. Errors: those of RankOrders;
// kProtocol where ranks are held at different barriers, kAborted where nobody knows at which.
control::Task<Result<void>> hold_at_one_step(std::shared_ptr<RankOrders> ranks,
                                             std::chrono::milliseconds longest);

}  // namespace ckpt::coordinator
