// SPDX-License-Identifier: Apache-2.0
// Open TCP connections between two sockets of one process tree, within a process or between its processes.
// The connections travel between networks (CRIU's --tcp-established). CRIU saves both ends and their queues.
// Each end stays in repair mode after a dump, so the kernel closes it without sending a packet.
// Threads: any. The functions read files under /proc (use offload()). Errors: kIo. Sockets that were closed
// in the meantime are left out.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "agent/host_process/sockets/sockets.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Returns the established connections of the tree's sockets `own` whose other end is in the tree, too.
[[nodiscard]] std::map<Inode, Connection> inner_connections(const std::map<Inode, Connection>& all,
                                                            const std::map<Inode, std::string>& own);

class ConnectionRepair {
 public:
  // Records the sockets' values of SO_REUSEADDR before the dump, because repair mode changes this option.
  static Result<ConnectionRepair> before(pid_t root);
  // Checks whether the tree had TCP connections when before() was called. A dump must then save them.
  [[nodiscard]] bool has_any() const noexcept { return !reuse_.empty(); }
  // Turns off repair mode after a dump, before the processes continue, and ends hold_packets(). An agent that
  // has not begun the dump may call this function, too. The sockets `kept` stay as they are.
  Result<void> end(pid_t root, const std::map<Inode, Connection>& kept = {}) const;

 private:
  std::map<Inode, int> reuse_;  // value of SO_REUSEADDR for each socket
  bool is_recorded_ = false;    // true after before(): only the sockets in reuse_ can be in repair mode
};

}  // namespace ckpt::agent::host
