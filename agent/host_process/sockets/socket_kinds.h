// SPDX-License-Identifier: Apache-2.0
// Kinds and states of sockets that CRIU cannot save or restore. What it is known to restore passes, and all else is
// named by its family. Tried with CRIU 4.2.1.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone meanwhile passes.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "agent/host_process/processes/descriptors.h"

namespace ckpt::agent::host {

// The sockets of netlink in process `pid`'s network that hold messages: inode -> what.
[[nodiscard]] std::map<Inode, std::string> unread_netlink(pid_t pid);

// Why a socket cannot travel, of which this process has a copy; empty: it can.
[[nodiscard]] std::string why_not_socket(int socket);

}  // namespace ckpt::agent::host
