// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/borrowed_socket.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {

Result<void> for_each_socket(pid_t root,
                             const std::function<Result<void>(Inode, const BorrowedSocket&)>& visit) {
  CKPT_TRY(processes, processes_of(root));
  std::set<Inode> seen;
  for (const pid_t pid : processes) {
    std::error_code gone;
    for (const auto& item : std::filesystem::directory_iterator(proc_path(pid, "/fd"), gone)) {
      std::error_code failed;
      const Inode inode = inode_of(std::filesystem::read_symlink(item.path(), failed).string(), "socket");
      if (inode == 0 || !is_internet(protocol_of(item.path().string())) || !seen.insert(inode).second)
        continue;
      BorrowedSocket socket;
      socket.pid = pid;
      socket.number = std::atoi(item.path().filename().c_str());
      socket.fd = borrow_descriptor(pid, socket.number);
      CKPT_TRYV(visit(inode, socket));
    }
  }
  return ok();
}

}  // namespace ckpt::agent::host
