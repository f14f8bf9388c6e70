// SPDX-License-Identifier: Apache-2.0
// Shares the TCP and UDP ports of a stopped program with its restored copy on the same machine, through
// SO_REUSEPORT. The option is set after the dump, so that the image has the program's own setting.
// Threads: any. Ownership: the object owns no socket, so a port is released when its program exits. Errors:
// kIo names the process.
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
  // Restores the program's own value of SO_REUSEPORT before the program continues. Sockets that were closed
  // in the meantime are left out.
  void take_back();

 private:
  struct Socket {
    pid_t pid;
    int number;
  };
  std::vector<Socket> shared_;
};

}  // namespace ckpt::agent::host
