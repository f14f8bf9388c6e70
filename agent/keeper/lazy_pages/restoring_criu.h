// SPDX-License-Identifier: Apache-2.0
// The messages of `criu restore --lazy-pages` (criu/uffd.c of CRIU 4). For each process, CRIU sends the
// process's id and its userfaultfd. CRIU then reports that all processes are restored.
// Threads: one, which blocks until the deadline. Ownership: sockets. Errors: kProtocol, kTimedOut, errno.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::lazy_pages {

// The socket's name in the restore's working folder, where CRIU expects the socket.
inline constexpr const char* kSocketName = "lazy-pages.socket";

// Listens on the socket. The caller's working folder must be the restore's working folder, because the
// folder's path may be too long for an address.
Result<UniqueFd> listen_for_criu();

class RestoringCriu {
 public:
  // Waits for CRIU's connection.
  static Result<RestoringCriu> accept(int listener, Nanos deadline);

  struct Process {
    std::uint32_t id = 0;
    UniqueFd faults;  // userfaultfd of the process; invalid if the process has exited
  };
  // Returns the next process when fd() is readable. No value means that all processes are restored.
  Result<std::optional<Process>> next();
  [[nodiscard]] int fd() const { return connection_.get(); }

 private:
  RestoringCriu(UniqueFd connection, Nanos deadline)
      : connection_(std::move(connection)), deadline_(deadline) {}
  UniqueFd connection_;
  Nanos deadline_;
};

}  // namespace ckpt::lazy_pages
