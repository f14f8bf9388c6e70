// SPDX-License-Identifier: Apache-2.0
// TCP connections of a process tree to programs outside of the tree, for a move that ends them (--connections
// reset). The source keeps the connections until the move is final, because the program may continue at the
// source. Then the source resets its ends. At the target the program's sockets report that their connections
// were reset.
// Threads: any. The functions read files under /proc (use offload()). Errors: kIo. Sockets that were closed
// in the meantime are left out.
#pragma once

#include <sys/types.h>

#include <map>

#include "agent/host_process/sockets/sockets.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct TreeConnections {
  std::map<Inode, Connection> inner;  // established connections with both ends in the tree
  std::map<Inode, Connection> outer;  // all other connections, including those that are being opened or
                                      // closed
};
Result<TreeConnections> connections_of(pid_t root);

// Drops the packets of the outer connections until admit_packets(). The peers then send these packets again.
// Call this function before a dump that saves connections, because CRIU fails if a packet changes a queue
// while CRIU reads it.
Result<void> hold_packets(pid_t root, const std::map<Inode, Connection>& outer);
// Removes the filter of hold_packets() from one socket. Other filters stay.
void admit_packets(int socket);

// Ends the outer connections of a stopped tree that does not continue here. Each peer receives a reset.
Result<void> reset_outer(pid_t root);
// Lets the sockets of a restored, stopped tree whose connections have ended (ended_connections.h) report
// ECONNRESET. Without this call they read the end of the stream, as if all data had arrived.
Result<void> report_resets(pid_t root);

}  // namespace ckpt::agent::host
