// SPDX-License-Identifier: Apache-2.0
// The TCP and UDP sockets of a process tree. They are available as descriptors of this process while a
// callback reads or changes them.
// Threads: any. Errors: kNotFound if the tree no longer exists, and the callback's errors.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "agent/host_process/sockets/sockets.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct BorrowedSocket {
  pid_t pid = 0;
  int number = 0;
  UniqueFd fd;  // descriptor of the socket; invalid if the socket was closed in the meantime
  [[nodiscard]] std::string where() const {
    return "descriptor " + std::to_string(number) + " of process " + std::to_string(pid);
  }
};

// Visits each socket once, even if several processes have it. The function returns the first error and skips
// the remaining sockets.
Result<void> for_each_socket(pid_t root,
                             const std::function<Result<void>(Inode, const BorrowedSocket&)>& visit);

}  // namespace ckpt::agent::host
