// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a gang on this node meet: MASTER_ADDR and MASTER_PORT, as torchrun sets them.
// Threads: the event loop. Errors: errno, where no port can be had.
#pragma once

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

// Adds what the environment of a rank lacks of them: the coordinator gives all but rank 0 the port that its node has
// found free by this. Nothing for a job of one rank.
Result<void> add_rendezvous(wire::JobSpec& spec);

}  // namespace ckpt::agent
