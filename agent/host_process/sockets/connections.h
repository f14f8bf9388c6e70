// SPDX-License-Identifier: Apache-2.0
// Open TCP connections between two sockets of one process tree: to itself, or between its processes. They
// travel between networks (CRIU's --tcp-established): both ends are saved with what is in their queues. Each
// end stays in repair mode after a dump, so that it closes in silence.
// Threads: any; reads files under /proc (offload()). Errors: kIo; what has ended meanwhile is left out.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "agent/host_process/sockets/sockets.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The established connections of the tree's sockets `own` whose other end is in the tree, too.
[[nodiscard]] std::map<Inode, Connection> inner_connections(const std::map<Inode, Connection>& all,
                                                            const std::map<Inode, std::string>& own);

class ConnectionRepair {
 public:
  // Notes the options of the sockets before the dump: repair mode changes one.
  static Result<ConnectionRepair> before(pid_t root);
  // True if there are such connections: a dump must then save them.
  [[nodiscard]] bool has_any() const noexcept { return !reuse_.empty(); }
  // Ends repair mode after a dump, before the processes go on. An agent that has not begun the dump may call
  // it, too.
  Result<void> end(pid_t root) const;

 private:
  std::map<Inode, int> reuse_;  // SO_REUSEADDR
};

}  // namespace ckpt::agent::host
