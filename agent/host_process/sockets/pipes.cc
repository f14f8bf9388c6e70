// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/pipes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "agent/host_process/processes/descriptors.h"
#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {
namespace {

// Checks whether the tree still has one end of the pipe under that number, and the other end is open
// elsewhere.
bool has_other_end(Inode pipe, pid_t pid, int number) {
  const UniqueFd end = borrow_descriptor(pid, number);
  struct stat facts {};
  if (!end || ::fstat(end.get(), &facts) != 0 || facts.st_ino != pipe) return false;
  pollfd state{end.get(), 0, 0};
  return ::poll(&state, 1, 0) == 0 || (state.revents & (POLLHUP | POLLERR)) == 0;
}

}  // namespace

void TreePipes::note(Inode pipe, pid_t pid, int number, int access) {
  Pipe& found = pipes_[pipe];
  found.is_read = found.is_read || access != O_WRONLY;
  found.is_written = found.is_written || access != O_RDONLY;
  found.pid = pid;
  found.number = number;
}

Result<std::vector<pid_t>> TreePipes::note_open_ones(pid_t root) {
  CKPT_TRY(processes, processes_of(root));
  for (const pid_t pid : processes) {
    std::error_code gone;
    for (const auto& item : std::filesystem::directory_iterator(proc_path(pid, "/fd"), gone)) {
      std::error_code closed;
      const Inode pipe = inode_of(std::filesystem::read_symlink(item.path(), closed).string(), "pipe");
      const int number = std::atoi(item.path().filename().c_str());
      if (pipe != 0 && pipes_.contains(pipe)) note(pipe, pid, number, access_of(pid, number));
    }
  }
  return processes;
}

void TreePipes::erase_inner_pipes() {
  std::erase_if(pipes_, [](const auto& item) {
    const Pipe& pipe = item.second;
    return (pipe.is_read && pipe.is_written) || !has_other_end(item.first, pipe.pid, pipe.number);
  });
}

Result<std::vector<std::string>> TreePipes::to_outside(pid_t root) {
  constexpr int kLooks = 3;
  std::vector<pid_t> tree;
  erase_inner_pipes();
  for (int look = 0; look < kLooks && !pipes_.empty(); ++look) {
    CKPT_TRY(processes, note_open_ones(root));
    tree = std::move(processes);
    erase_inner_pipes();
  }
  std::set<Inode> left;
  for (const auto& [inode, pipe] : pipes_) left.insert(inode);
  const std::map<Inode, Owner> owners = owners_of(left, "pipe", {tree.begin(), tree.end()});
  std::vector<std::string> texts;
  for (const auto& [inode, pipe] : pipes_) {
    const auto owner = owners.find(inode);
    // An owner in the tree is not the other end, because the tree's own end has the same inode number.
    const bool is_known =
        owner != owners.end() && std::find(tree.begin(), tree.end(), owner->second.pid) == tree.end();
    if (!is_known && !has_other_end(inode, pipe.pid, pipe.number)) continue;
    const std::string to = is_known
                               ? owner->second.name + " (process " + std::to_string(owner->second.pid) + ")"
                               : "a process outside";
    texts.push_back("descriptor " + std::to_string(pipe.number) + " of process " + std::to_string(pipe.pid) +
                    " is a pipe to " + to);
  }
  return texts;
}

}  // namespace ckpt::agent::host
