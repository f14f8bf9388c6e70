// SPDX-License-Identifier: Apache-2.0
// POSIX message queues by name. One that a process has open is found among its descriptors; this finds those
// that the job made and no process has open. The kernel notes no maker. A queue is the job's where its user
// made it since the job started here, and that user has no other job on this node.
// Threads: any; reads files under /proc (offload()). Errors: none; where the kernel has no such queues there
// are none.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/obstacles/kernel_names.h"

namespace ckpt::agent::host {

// Returns a text for each queue.
[[nodiscard]] std::vector<std::string> message_queues_of(const NameOwner& owner);

}  // namespace ckpt::agent::host
