// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/bound_ports.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "agent/host_process/process_tree.h"
#include "agent/host_process/sockets.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

UniqueFd socket_of(pid_t pid, int number) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
}

bool is_shared(int socket) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &value, &bytes) == 0 && value != 0;
}

bool set_shared(int socket, int value) {
  return ::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &value, sizeof value) == 0;
}

}  // namespace

Result<void> BoundPorts::share(pid_t root) {
  CKPT_TRY(processes, processes_of(root));
  std::set<Inode> seen;
  for (const pid_t pid : processes) {
    std::error_code gone;
    for (const auto& item : std::filesystem::directory_iterator(proc_path(pid, "/fd"), gone)) {
      const Inode inode = inode_of(std::filesystem::read_symlink(item.path(), gone).string(), "socket");
      if (inode == 0 || !is_internet(protocol_of(item.path().string())) || !seen.insert(inode).second)
        continue;
      const int number = std::atoi(item.path().filename().c_str());
      const UniqueFd socket = socket_of(pid, number);
      if (socket && is_shared(socket.get())) continue;
      if (!socket || !set_shared(socket.get(), 1))
        return Error::from_errno("Sharing the port of descriptor " + std::to_string(number) + " of process " +
                                 std::to_string(pid));
      shared_.push_back({pid, number});
    }
  }
  return ok();
}

void BoundPorts::take_back() {
  for (const Socket& held : shared_) {
    const UniqueFd socket = socket_of(held.pid, held.number);
    if (socket) (void)set_shared(socket.get(), 0);
  }
  shared_.clear();
}

}  // namespace ckpt::agent::host
