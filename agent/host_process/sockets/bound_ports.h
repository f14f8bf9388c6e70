// SPDX-License-Identifier: Apache-2.0
// The TCP and UDP ports that a stopped program holds, while its restored copy on the same machine takes them,
// too: SO_REUSEPORT. It is set after the dump, so that the image has what the program itself had set.
// Threads: any. Ownership: holds no socket, so that a port ends with its program. Errors: kIo, naming the
// process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

class BoundPorts {
 public:
  // Shares the ports of all processes under `root`, which are stopped.
  Result<void> share(pid_t root);
  // Restores the program's own option, before the program goes on. Sockets that have ended meanwhile are left
  // out.
  void take_back();

 private:
  struct Socket {
    pid_t pid;
    int number;
  };
  std::vector<Socket> shared_;
};

}  // namespace ckpt::agent::host
