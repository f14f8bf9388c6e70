// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/bound_ports.h"

#include <sys/socket.h>

#include "agent/host_process/processes/descriptors.h"
#include "agent/host_process/sockets/borrowed_socket.h"

namespace ckpt::agent::host {
namespace {

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
  return for_each_socket(root, [this](Inode, const BorrowedSocket& socket) -> Result<void> {
    if (socket.fd && is_shared(socket.fd.get())) return ok();
    if (!socket.fd || !set_shared(socket.fd.get(), 1))
      return Error::from_errno("Cannot share the port of " + socket.where());
    shared_.push_back({socket.pid, socket.number});
    return ok();
  });
}

void BoundPorts::take_back() {
  for (const Socket& held : shared_) {
    const UniqueFd socket = borrow_descriptor(held.pid, held.number);
    if (socket) (void)set_shared(socket.get(), 0);
  }
  shared_.clear();
}

}  // namespace ckpt::agent::host
