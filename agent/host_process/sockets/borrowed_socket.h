// SPDX-License-Identifier: Apache-2.0
// The TCP and UDP sockets of a process tree, as descriptors of this process for as long as they are asked or
// set.
// Threads: any. Errors: kNotFound where the tree is gone, and what the callback returns.
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
  UniqueFd fd;  // may be invalid: it was closed meanwhile
  [[nodiscard]] std::string where() const {
    return "descriptor " + std::to_string(number) + " of process " + std::to_string(pid);
  }
};

// Each socket once, however many processes have it. Ends with the first error.
Result<void> for_each_socket(pid_t root,
                             const std::function<Result<void>(Inode, const BorrowedSocket&)>& visit);

}  // namespace ckpt::agent::host
