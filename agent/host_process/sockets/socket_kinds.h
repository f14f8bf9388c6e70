// SPDX-License-Identifier: Apache-2.0
// Kinds and states of sockets that CRIU cannot save or restore. Kinds that it is known to restore pass. All
// others are named by their family. Tried with CRIU 4.2.1.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone meanwhile passes.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "agent/host_process/processes/descriptors.h"

namespace ckpt::agent::host {

// Returns the netlink sockets in process `pid`'s network that hold messages: inode -> text.
[[nodiscard]] std::map<Inode, std::string> unread_netlink(pid_t pid);

// Returns why a socket, of which this process has a copy, cannot travel; empty: it can.
[[nodiscard]] std::string why_not_socket(int socket);

}  // namespace ckpt::agent::host
