// SPDX-License-Identifier: Apache-2.0
// Whether the movers of two GPUs on different nodes reach each other over a network. It is asked before a
// move touches its target, by a lane of the kind that the move will use.
// Threads: one io_context on one thread. Ownership: borrows `calls`. Errors: kRefused, naming the network, the
// nodes and the reason; nothing was touched.
#pragma once

#include <chrono>
#include <string>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/policies/placement/networks.h"
#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// A mover may have to be started, and a lane to be given up.
inline constexpr std::chrono::milliseconds kNetworkCheckLimit{40000};

// Over each pair of its addresses, one after the other. Its name is empty: a node's agent is of a version that
// names none and answers no checks.
control::Task<Result<void>> check_network(NodeCalls& calls, Place from, Place to, SharedNetwork network,
                                          std::chrono::milliseconds limit = kNetworkCheckLimit);
// Checks the network of that migration, within the migration's own timeout if that is shorter.
control::Task<Result<void>> check_network(NodeCalls& calls, const Migration& migration,
                                          SharedNetwork network);

}  // namespace ckpt::coordinator
