// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a gang on this node meet: MASTER_ADDR and MASTER_PORT, as torchrun sets them.
// Threads: the event loop. Errors: errno, where no port can be had.
#pragma once

#include "agent/jobs/job_table.h"

namespace ckpt::agent {

// Adds what the environment of a rank lacks of them. The port is that of the gang's other ranks here, else one
// that is free now. Nothing for a job of one rank.
Result<void> add_rendezvous(const JobTable& jobs, wire::JobSpec& spec);

}  // namespace ckpt::agent
