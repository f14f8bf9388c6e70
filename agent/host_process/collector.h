// SPDX-License-Identifier: Apache-2.0
// Collects the files of a process tree once: maps, descriptors, working directories and sockets. The
// collector checks each file as it reads it. Only file_list.cc uses this class.
// Threads: one. Errors: kNotFound if the tree no longer exists. An obstacle to a move is a problem, not an
// error.
#pragma once

#include <sys/stat.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/host_process/file_list.h"
#include "agent/host_process/processes/name_owner.h"
#include "agent/host_process/sockets/connections.h"
#include "agent/host_process/sockets/pipes.h"

namespace ckpt::agent::host {

[[nodiscard]] Error refusal(const std::string& what, const std::vector<std::string>& problems);

class Collector {
 public:
  explicit Collector(const FileRules& rules) : rules_(rules) {}
  Result<void> collect(pid_t root);
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }
  [[nodiscard]] FileList release_list();

 private:
  void read_process(pid_t pid, pid_t root);
  void read_surroundings(pid_t pid);
  void read_maps(pid_t pid);
  void read_map(pid_t pid, const std::string& range, const std::string& permissions, const std::string& path,
                std::uint64_t inode);
  void read_descriptors(pid_t pid);
  void read_descriptor(pid_t pid, int number, const std::string& link);
  void check_file(pid_t pid, const std::string& path, const std::string& opened_as, bool written,
                  bool mapped);
  void describe(FileFact& fact, const std::string& opened_as, const struct stat& facts, bool written,
                bool mapped);
  void check_unlinked(const std::string& path, const struct stat* facts, const std::string& where);
  [[nodiscard]] bool is_driver_file(const std::string& path) const;
  void check_driver_file(pid_t pid, const std::string& path);
  void check_device(const std::string& path, std::uint64_t device, const std::string& where);
  void check_socket(pid_t pid, int number, Inode socket);
  void check_names();
  Result<void> check_sockets(pid_t root);
  Result<void> check_internet_sockets(pid_t root);
  Result<void> note_bound_sockets(pid_t root);
  void check_connections(const std::map<Inode, Connection>& connections);
  Result<void> check_ended_connections(pid_t root);
  Result<void> check_pipes(pid_t root);
  Result<void> check_named(pid_t root);
  void check_own_memory(pid_t root);
  void check_mount(pid_t pid, int number, const std::string& where);
  [[nodiscard]] std::string why_not_of_proc(pid_t pid, const std::string& path) const;
  void check_travelling_bytes(const std::string& path, std::uint64_t bytes, const std::string& how);
  void add(FileFact fact);
  void problem(std::string text) { problems_.push_back(std::move(text)); }

  const FileRules& rules_;
  NameOwner owner_;
  std::set<int> own_mounts_;  // ids of the mounts that the job sees, if it has its own mounts (mount_table.h)
  std::set<int> mapped_system_v_;  // ids of the System V shared memory segments that are mapped
  std::map<Inode, std::string> unread_netlink_;
  std::map<std::string, FileFact> files_;
  std::set<pid_t> driver_holders_;
  std::map<Inode, std::string> sockets_;   // sockets by inode, with the place where each one is open
  std::map<Inode, std::string> internet_;  // Internet sockets by inode, with their protocols (TCP, UDP, ...)
  std::string network_;
  std::vector<BoundSocket> bound_;
  std::vector<BoundSocket> connected_;
  std::set<Inode> ended_;  // inodes of the sockets whose connections have one end outside the program
  std::vector<SocketFolder> socket_folders_;
  TreePipes pipes_;
  std::set<std::pair<dev_t, ino_t>> unlinked_;
  NamedMemory named_;
  CacheFiles cached_;
  TreeLocks locks_;
  FileSystems systems_;
  std::uint64_t unlinked_bytes_ = 0;  // total size of the unlinked files
  std::vector<std::string> problems_;
};

}  // namespace ckpt::agent::host
