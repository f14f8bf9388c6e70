// SPDX-License-Identifier: Apache-2.0
// POSIX message queues by name. A queue that a process has open is found among its descriptors. This module
// finds the queues that the job created and no process has open. The kernel does not record the creator. A
// queue counts as the job's if the job's user created it since the job started here. That user must have no
// other job on this node.
// Threads: any. The function reads files under /proc (use offload()). Errors: none. A kernel without message
// queues has none.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/obstacles/kernel_names.h"

namespace ckpt::agent::host {

// Returns a text for each queue that counts as the job's and that no process has open.
[[nodiscard]] std::vector<std::string> message_queues_of(const NameOwner& owner);
// Returns a text for each queue of the IPC namespace of `root`, which is the job's own. If a living job's
// queues cannot be read, the result is one text about that.
[[nodiscard]] std::vector<std::string> message_queues_within(pid_t root);

}  // namespace ckpt::agent::host
