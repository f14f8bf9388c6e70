// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/descriptors.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {
namespace {

// Adds the process as the owner of every inode of `inodes` that it has open and that has no owner yet.
void scan_process(const std::filesystem::path& process, const std::set<Inode>& inodes, const char* kind,
                  std::map<Inode, Owner>& owners) {
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator(process / "fd", gone)) {
    const Inode inode = inode_of(std::filesystem::read_symlink(item.path(), gone).string(), kind);
    if (inode == 0 || !inodes.contains(inode) || owners.contains(inode)) continue;
    const Result<std::string> name = read_file((process / "comm").string(), 64);
    Owner owner;
    owner.pid = std::atoi(process.filename().c_str());
    if (name.has_value()) owner.name = name->substr(0, name->find('\n'));
    owners.emplace(inode, std::move(owner));
  }
}

}  // namespace

Inode inode_of(const std::string& link, const char* kind) {
  const std::string start = std::string(kind) + ":[";
  return link.starts_with(start) ? std::strtoull(link.c_str() + start.size(), nullptr, 10) : 0;
}

int access_of(pid_t pid, int number) {
  const Result<std::string> info = read_file(proc_path(pid, "/fdinfo/") + std::to_string(number), 65536);
  if (!info.has_value()) return O_RDONLY;
  const std::size_t at = info->find("flags:");
  if (at == std::string::npos) return O_RDONLY;
  return static_cast<int>(std::strtol(info->c_str() + at + 6, nullptr, 8)) & O_ACCMODE;
}

std::map<Inode, Owner> owners_of(const std::set<Inode>& inodes, const char* kind,
                                 const std::set<pid_t>& besides) {
  std::map<Inode, Owner> owners;
  if (inodes.empty()) return owners;
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = item.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!besides.contains(std::atoi(name.c_str()))) scan_process(item.path(), inodes, kind, owners);
  }
  for (const pid_t pid : besides) scan_process("/proc/" + std::to_string(pid), inodes, kind, owners);
  return owners;
}

UniqueFd borrow_descriptor(pid_t pid, int number) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
}

}  // namespace ckpt::agent::host
