// SPDX-License-Identifier: Apache-2.0
// Kinds and states of sockets that CRIU cannot save or restore. Kinds that CRIU is known to restore are
// accepted. All other kinds are reported by their family. Tests used CRIU 4.2.1.
// Threads: any. The functions read files under /proc (use offload()). Errors: none. Sockets that were closed
// in the meantime are accepted.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "agent/host_process/processes/descriptors.h"

namespace ckpt::agent::host {

// Returns the netlink sockets in process `pid`'s network that contain unread messages: inode -> text.
[[nodiscard]] std::map<Inode, std::string> unread_netlink(pid_t pid);

// Returns the reason why a socket cannot travel. `socket` is this process's copy of it. An empty string means
// that the socket can travel.
[[nodiscard]] std::string why_not_socket(int socket);

}  // namespace ckpt::agent::host
