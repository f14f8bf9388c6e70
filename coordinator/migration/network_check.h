// SPDX-License-Identifier: Apache-2.0
// Checks whether the movers of two GPUs on different nodes reach each other over a network. The check runs
// before a move changes its target, and uses a lane of the same kind as the move.
// Threads: one io_context on one thread. Ownership: borrows `calls`. Errors: kRefused, naming the network,
// the nodes and the reason; nothing was changed.
#pragma once

#include <chrono>
#include <string>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/policies/placement/networks.h"
#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// The limit of a check. A mover may have to be started, and an attempt to open a lane may have to be
// abandoned.
inline constexpr std::chrono::milliseconds kNetworkCheckLimit{40000};

// Checks each pair of the network's addresses in sequence. An empty network name means that a node's agent is
// of a version that names no networks and answers no checks.
control::Task<Result<void>> check_network(NodeCalls& calls, Place from, Place to, SharedNetwork network,
                                          std::chrono::milliseconds limit = kNetworkCheckLimit);
// Checks the network of the migration, within the migration's own timeout if that is shorter.
control::Task<Result<void>> check_network(NodeCalls& calls, const Migration& migration,
                                          SharedNetwork network);

}  // namespace ckpt::coordinator
