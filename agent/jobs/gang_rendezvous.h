// SPDX-License-Identifier: Apache-2.0
// The address at which the ranks of a gang on this node meet: MASTER_ADDR and MASTER_PORT, as torchrun sets
// them.
// Threads: the event loop. Errors: errno if no port is available.
#pragma once

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

// Adds MASTER_ADDR and MASTER_PORT if the rank's environment lacks them. The coordinator gives the other
// ranks the port that rank 0's node has found. A job of one rank gets neither variable.
Result<void> add_rendezvous(wire::JobSpec& spec);

// Checks whether an instance was started by the order `asked`. A repeated order lacks the variables that
// add_rendezvous() has added to the first one.
[[nodiscard]] bool is_same_order(const wire::JobSpec& started, wire::JobSpec asked);

}  // namespace ckpt::agent
