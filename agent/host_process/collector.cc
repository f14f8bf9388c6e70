// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/collector.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "agent/host_process/criu.h"
#include "agent/host_process/files/build_id.h"
#include "agent/host_process/files/proc_files.h"
#include "agent/host_process/named_memory/shared_folder.h"
#include "agent/host_process/obstacles/descriptor_kinds.h"
#include "agent/host_process/obstacles/kernel_keys.h"
#include "agent/host_process/obstacles/kernel_names.h"
#include "agent/host_process/obstacles/message_queues.h"
#include "agent/host_process/obstacles/process_state.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/sockets/socket_kinds.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxMapsBytes = 64u << 20;
constexpr std::string_view kDeleted = " (deleted)";
constexpr unsigned kMemoryDevices = 1;  // the major number of null, zero, random, and similar devices

std::string link_of(const std::string& path) {
  std::error_code gone;
  return std::filesystem::read_symlink(path, gone).string();
}

bool is_link(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
}

bool strip_deleted(std::string& path) {
  if (!path.ends_with(kDeleted)) return false;
  path.resize(path.size() - kDeleted.size());
  return true;
}

bool has_any_prefix(const std::string& text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto prefix) { return text.starts_with(prefix); });
}

// Returns the path of the mapped file in map_files. The path also reaches a deleted file. The numbers in the
// path have no leading zeros.
std::string map_file(pid_t pid, const std::string& range) {
  const auto without_zeros = [](std::string_view number) {
    return number.substr(std::min(number.find_first_not_of('0'), number.size() - 1));
  };
  const std::string_view all = range;
  const std::size_t dash = all.find('-');
  if (dash == std::string_view::npos || dash == 0 || dash + 1 == all.size()) return "";
  return proc_path(pid, "/map_files/") + std::string(without_zeros(all.substr(0, dash))) + "-" +
         std::string(without_zeros(all.substr(dash + 1)));
}

std::string descriptor_of(pid_t pid, int number) {
  return "descriptor " + std::to_string(number) + " of process " + std::to_string(pid);
}

constexpr std::string_view kLocks = "locks:";  // prefix of a rule for a folder in which the driver locks
                                               // files

// Checks whether the driver has created the file for a context. The driver closes such a file and releases
// its locks when the context is saved.
bool is_file_of_contexts(const FileRules& rules, const std::string& path) {
  return std::any_of(rules.driver_files.begin(), rules.driver_files.end(), [&path](const std::string& name) {
    return name.starts_with(kLocks) && path.starts_with(std::string_view(name).substr(kLocks.size()));
  });
}

}  // namespace

Error refusal(const std::string& what, const std::vector<std::string>& problems) {
  std::string text = what + ": ";
  for (std::size_t i = 0; i < problems.size() && i < kMaxProblems; ++i)
    text += (i == 0 ? "" : "; ") + problems[i];
  if (problems.size() > kMaxProblems)
    text += "; and " + std::to_string(problems.size() - kMaxProblems) + " more";
  return {ErrorCode::kRefused, text};
}

Result<void> Collector::collect(pid_t root) {
  CKPT_TRY(processes, processes_of(root));
  owner_ = name_owner(root, rules_.names);
  unread_netlink_ = unread_netlink(root);
  if (rules_.own.present) {
    check_own_memory(root);
  } else {
    CKPT_TRYV(check_named(root));
  }
  CKPT_TRY(cached, cache_files_of(root, rules_.cache_folders));
  std::erase_if(cached.files, [this](const CacheFile& file) { return rules_.own.contains(file.path); });
  cached_ = std::move(cached);
  for (const pid_t pid : processes) {
    const std::size_t before = problems_.size();
    if (has_ended(pid)) continue;
    read_process(pid, root);
    // A process that has exited in the meantime has no problems, because its files were already closed.
    if (has_ended(pid)) problems_.resize(before);
  }
  for (std::string& text : locks_.problems()) problem(std::move(text));
  CKPT_TRYV(check_pipes(root));
  CKPT_TRYV(check_sockets(root));
  check_names();
  return ok();
}

void Collector::read_process(pid_t pid, pid_t root) {
  const Tracers own = {::getpid(), rules_.keeper};
  for (std::string& text : obstacles_of_process(pid, root, own, rules_.own.present)) problem(std::move(text));
  read_surroundings(pid);
  read_maps(pid);
  read_descriptors(pid);
}

// Checks the objects that the kernel knows by a name, even if no process has them open now.
void Collector::check_names() {
  if (rules_.own.present) {  // CRIU saves the System V objects of an IPC namespace
    for (std::string& text : message_queues_within(owner_.root)) problem(std::move(text));
  } else {
    for (std::string& text : system_v_of(owner_, mapped_system_v_)) problem(std::move(text));
    for (std::string& text : message_queues_of(owner_)) problem(std::move(text));
  }
  for (std::string& text : key_rings_of(owner_)) problem(std::move(text));
}

FileList Collector::release_list() {
  FileList list;
  for (auto& [path, fact] : files_) list.files.push_back(std::move(fact));
  list.network = std::move(network_);
  list.bound = std::move(bound_);
  list.connected = std::move(connected_);
  list.ended_connections = ended_.size();
  list.socket_folders = std::move(socket_folders_);
  list.named = std::move(named_);
  list.cached = std::move(cached_);
  list.locks = locks_.locks();
  return list;
}

void Collector::read_surroundings(pid_t pid) {
  if (link_of(proc_path(pid, "/root")) != "/")
    problem(name_of_process(pid) + " has a different root folder (chroot): start the program without chroot");
  std::string folder = link_of(proc_path(pid, "/cwd"));
  if (strip_deleted(folder)) return problem("the working directory " + folder + " was deleted");
  if (rules_.own.contains(folder)) return;
  if (names_process(folder) || !why_not_its_own(pid, folder).empty())
    return problem("the working directory of process " + std::to_string(pid) + " is " + folder +
                   ", which shows data of this node only: let the program change to another folder");
  FileFact fact;
  fact.use = FileUse::kFolder;
  fact.path = std::move(folder);
  add(std::move(fact));
}

void Collector::read_maps(pid_t pid) {
  const Result<std::string> maps = read_file(proc_path(pid, "/maps"), kMaxMapsBytes);
  if (!maps.has_value()) return;
  std::set<std::string> kinds;
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string range, permissions, offset, device, inode, path;
    words >> range >> permissions >> offset >> device >> inode >> std::ws;
    std::getline(words, path);
    if (path.starts_with('/'))
      read_map(pid, range, permissions, path, std::strtoull(inode.c_str(), nullptr, 10));
    else if (const std::string reason = why_not_mapped(path); !reason.empty() && kinds.insert(path).second)
      problem(name_of_process(pid) + " " + reason);
  }
}

void Collector::read_map(pid_t pid, const std::string& range, const std::string& permissions,
                         const std::string& path, std::uint64_t inode) {
  if (is_driver_file(path)) return check_driver_file(pid, path);
  if (has_any_prefix(path, {"/dev/zero", "/[aio]"})) return;
  if (path.starts_with("/SYSV")) {  // the inode of a System V segment is its id
    if (!rules_.own.present && mapped_system_v_.insert(static_cast<int>(inode)).second)
      problem(name_of_process(pid) + " has System V shared memory " + std::to_string(inode) +
              " mapped, which cannot be moved: let the program use POSIX shared memory, or unmap the segment "
              "before the move");
    return;
  }
  if (const bool nameless = path.ends_with(kDeleted) || path.starts_with("/dmabuf:"); nameless) {
    if (const std::string reason = why_not_a_file(pid, path, map_file(pid, range)); !reason.empty())
      return problem("a mapping of " + name_of_process(pid) + " " + reason);
  }
  if (path.starts_with("/memfd:")) return;
  const bool written = permissions.size() >= 4 && permissions[1] == 'w' && permissions[3] == 's';
  check_file(pid, path, path.ends_with(kDeleted) ? map_file(pid, range) : path, written, true);
}

void Collector::read_descriptors(pid_t pid) {
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator(proc_path(pid, "/fd"), gone)) {
    read_descriptor(pid, std::atoi(item.path().filename().c_str()), link_of(item.path().string()));
  }
}

void Collector::read_descriptor(pid_t pid, int number, const std::string& link) {
  const std::string where = descriptor_of(pid, number);
  const std::string opened_as = proc_path(pid, "/fd/") + std::to_string(number);
  std::string reason;
  if (const Inode socket = inode_of(link, "socket")) {
    check_socket(pid, number, socket);
  } else if (const Inode pipe = inode_of(link, "pipe")) {
    reason = why_not_pipe(pid, number);
    pipes_.note(pipe, pid, number, access_of(pid, number));
  } else if (is_driver_file(link)) {
    check_driver_file(pid, link);
  } else if (!link.starts_with('/')) {
    // An empty link means that the descriptor is closed.
    if (!link.empty()) reason = why_not_nameless(pid, number, link, owner_.tree);
  } else if (const std::string not_own = why_not_of_proc(pid, link); !not_own.empty()) {
    reason = "is " + not_own;
  } else if (names_process(link) || link == rules_.own_log) {
    check_mount(pid, number, where);
  } else {
    reason = why_not_a_file(pid, link, opened_as);
    if (reason.empty() && !link.starts_with("/memfd:")) {
      check_mount(pid, number, where);
      if (!is_file_of_contexts(rules_, link) && !rules_.own.contains(link)) locks_.note(pid, number, link);
      check_file(pid, link, opened_as, access_of(pid, number) != O_RDONLY, false);
    }
  }
  if (!reason.empty()) problem(where + " " + reason);
}

void Collector::check_socket(pid_t pid, int number, Inode socket) {
  if (!sockets_.emplace(socket, descriptor_of(pid, number)).second) return;
  const std::string protocol = protocol_of(proc_path(pid, "/fd/") + std::to_string(number));
  if (is_internet(protocol)) internet_.emplace(socket, protocol);
  std::string reason;
  if (const auto unread = unread_netlink_.find(socket); unread != unread_netlink_.end())
    reason = unread->second;
  if (const UniqueFd copy = borrow_descriptor(pid, number); reason.empty() && copy)
    reason = why_not_socket(copy.get());
  if (!reason.empty()) problem(sockets_[socket] + " " + reason);
}

std::string Collector::why_not_of_proc(pid_t pid, const std::string& path) const {
  return rules_.own.present ? why_not_in_own_proc(path) : why_not_its_own(pid, path);
}

// Checks the mount of an open file. A process outside the job may have given the program a descriptor from a
// mount that the job lacks. CRIU then reports "Can't lookup mount".
void Collector::check_mount(pid_t pid, int number, const std::string& where) {
  if (!rules_.own.present) return;
  const int mount = mount_of_descriptor(pid, number);
  if (mount >= 0 && !own_mounts_.contains(mount))
    problem(where + " was opened outside of the job's mount namespace: let the program open the file itself");
}

// Checks the contents of the mounts that the job has alone. CRIU saves these contents in the pause.
void Collector::check_own_memory(pid_t root) {
  if (const auto mounts = mounts_seen_by(proc_path(root, "")); mounts.has_value()) {
    for (const Mount& mount : *mounts) own_mounts_.insert(mount.id);
  }
  for (std::string& text : why_not_own(root, rules_.own)) problem(std::move(text));
  const auto memory = own_memory(root, rules_.own);
  if (!memory && has_ended(root)) return;
  std::string reason = memory ? why_too_much(*memory, rules_.own) : memory.error().to_string();
  if (!reason.empty()) problem(std::move(reason));
}

// Checks one open or mapped file. The path `opened_as` also reaches a file that was unlinked.
void Collector::check_file(pid_t pid, const std::string& path, const std::string& opened_as, bool written,
                           bool mapped) {
  const std::string where = (mapped ? "mapped by process " : "opened by process ") + std::to_string(pid);
  if (path.starts_with("/dev/infiniband/")) return problem(path + " (RDMA) is " + where);
  FileFact fact;
  fact.path = path;
  const bool deleted = strip_deleted(fact.path);
  if (rules_.own.contains(fact.path)) return;
  struct stat facts {};
  const bool there = ::stat(opened_as.c_str(), &facts) == 0;
  if (!there && opened_as != path && !is_link(opened_as))
    return;  // the file was closed or unmapped in the
             // meantime
  if (deleted) return check_unlinked(fact.path, there ? &facts : nullptr, where);
  if (!there) return problem(path + ", " + where + ", cannot be read");
  fact.bytes = static_cast<std::uint64_t>(facts.st_size);
  if (S_ISCHR(facts.st_mode)) return check_device(path, facts.st_rdev, where);
  if (!S_ISDIR(facts.st_mode) && !S_ISFIFO(facts.st_mode) && !S_ISREG(facts.st_mode))
    return problem(path + ", " + where + ", is not a file that can be moved");
  describe(fact, opened_as, facts, written, mapped);
  add(std::move(fact));
}

void Collector::describe(FileFact& fact, const std::string& opened_as, const struct stat& facts, bool written,
                         bool mapped) {
  if (S_ISDIR(facts.st_mode)) {
    fact.use = FileUse::kFolder;
    return;
  }
  if (S_ISFIFO(facts.st_mode)) {
    fact.use = FileUse::kOther;
    return;
  }
  if (is_file_of_contexts(rules_, fact.path)) {
    fact.use = FileUse::kWritten;  // each node has its own file of that length
    return;
  }
  fact.identity = systems_.identity_of(opened_as, facts);
  fact.kernels_own = is_kernels_own(opened_as);
  fact.is_mount = is_mount(opened_as);
  if (written) {
    fact.use = FileUse::kWritten;
    fact.shares_memory = mapped;
  } else if (mapped) {
    fact.build_id = build_id_of(fact.path);
    fact.use = fact.build_id.empty() ? FileUse::kRead : FileUse::kProgram;
  }
}

// Checks an unlinked file. An unlinked file travels with the image and is briefly created again in its
// folder. Worker processes share memory through such files.
void Collector::check_unlinked(const std::string& path, const struct stat* facts, const std::string& where) {
  if (facts == nullptr) return problem(path + " was deleted, is still " + where + ", and cannot be read");
  if (facts->st_nlink > 0 && named_.find(facts->st_ino) != nullptr) return;
  // CRIU would link the file there again, and would expect that link at the target.
  if (facts->st_nlink > 0)
    return problem(path + " was deleted, is still " + where +
                   ", and still has another hard link: a deleted file with hard links can be moved only if "
                   "one of its names is in " +
                   kSharedFolder);
  FileFact folder;
  folder.use = FileUse::kFolder;
  folder.path = std::filesystem::path(path).parent_path().string();
  add(std::move(folder));
  if (!unlinked_.emplace(facts->st_dev, facts->st_ino).second) return;
  check_travelling_bytes(path, static_cast<std::uint64_t>(facts->st_size),
                         "was deleted and is still " + where);
}

void Collector::check_travelling_bytes(const std::string& path, std::uint64_t bytes, const std::string& how) {
  unlinked_bytes_ += bytes;
  if (unlinked_bytes_ > kMaxUnlinkedBytes)
    problem(path + " (" + std::to_string(bytes) + " bytes) " + how +
            ": deleted or shared files may have at most " + std::to_string(kMaxUnlinkedBytes) +
            " bytes in total");
}

// Checks the named memory. The function also adds the named files to the list, because an older target must
// have them under their names.
Result<void> Collector::check_named(pid_t root) {
  CKPT_TRY(named, named_memory_of(owner_));
  named_ = std::move(named);
  for (std::string& text : names_in_doubt(owner_)) problem(std::move(text));
  for (std::string& text : shared_outside(named_, root)) problem(std::move(text));
  for (const NamedFile& file : named_.files) {
    FileFact fact;
    fact.use = FileUse::kWritten;
    fact.path = kSharedFolder + file.names.front();
    fact.bytes = file.bytes;
    check_travelling_bytes(fact.path, file.bytes, "is named shared memory");
    add(std::move(fact));
  }
  return ok();
}

bool Collector::is_driver_file(const std::string& path) const {
  return path.starts_with("/dev/nvidia") ||
         std::any_of(rules_.driver_files.begin(), rules_.driver_files.end(),
                     [&path](const std::string& name) { return path.starts_with(name); });
}

// Checks a file of the driver. A child that was forked without the shim keeps files of the driver open. A
// process that has no context to save also keeps them open.
void Collector::check_driver_file(pid_t pid, const std::string& path) {
  if (pid == rules_.gpu_process || !driver_holders_.insert(pid).second) return;
  const Result<std::string> name = read_file(proc_path(pid, "/comm"), 64);
  const std::string text = name.has_value() ? *name : "";
  problem("process " + std::to_string(pid) + " (" + text.substr(0, text.find('\n')) +
          ") has the GPU driver's " + path.substr(0, path.find(kDeleted)) +
          " open, but the driver's checkpoint closes driver files only in process " +
          std::to_string(rules_.gpu_process));
}

void Collector::check_device(const std::string& path, std::uint64_t device, const std::string& where) {
  if (path.starts_with("/dev/pts/") || path == "/dev/tty" || path == "/dev/console")
    return problem("the terminal " + path + " is " + where);
  if (major(device) != kMemoryDevices) return problem("the device " + path + " is " + where);
  FileFact fact;
  fact.use = FileUse::kDevice;
  fact.path = path;
  fact.device = device;
  add(std::move(fact));
}

// Adds a file to the list. A file with several uses counts as written if one of the uses is writing.
void Collector::add(FileFact fact) {
  auto [at, is_new] = files_.try_emplace(fact.path, fact);
  if (is_new) return;
  fact.shares_memory = fact.shares_memory || at->second.shares_memory;
  if (fact.use == FileUse::kWritten || (fact.use == FileUse::kProgram && at->second.use == FileUse::kRead))
    at->second = std::move(fact);
}

Result<void> Collector::check_pipes(pid_t root) {
  CKPT_TRY(texts, pipes_.to_outside(root));
  for (std::string& text : texts) problem(std::move(text));
  return ok();
}

Result<void> Collector::note_bound_sockets(pid_t root) {
  if (internet_.empty()) return ok();
  CKPT_TRY(addresses, bound_addresses(root));
  CKPT_TRY(connections, tcp_connections(root));
  network_ = network_of(root);
  for (const auto& [inode, protocol] : internet_) {
    const auto address = addresses.find(inode);
    if (address == addresses.end() || address->second.ends_with(":0")) continue;
    if (connections.contains(inode)) continue;  // check_connections() checks this socket
    BoundSocket& socket = bound_.emplace_back();
    socket.protocol = protocol;
    socket.address = address->second;
  }
  return ok();
}

Result<void> Collector::check_internet_sockets(pid_t root) {
  if (rules_.no_internet.empty() || internet_.empty()) return ok();
  CKPT_TRY(connections, tcp_connections(root));
  CKPT_TRY(addresses, bound_addresses(root));
  for (const auto& [inode, protocol] : internet_) {
    const bool is_connection = connections.contains(inode);
    if (is_connection && !rules_.ends_connections) continue;  // check_connections() reports this socket
    const auto address = addresses.find(inode);
    const bool listens = address != addresses.end() && protocol.starts_with("TCP") && !is_connection;
    problem(sockets_[inode] + (listens ? " listens" : " is a " + protocol + " socket") +
            (address != addresses.end() ? " at " + address->second : "") + ", which " + rules_.no_internet);
  }
  return ok();
}

// Checks the open TCP connections. A connection with both ends within the program travels. A connection with
// one end outside the program is terminated, or is an obstacle to the move.
void Collector::check_connections(const std::map<Inode, Connection>& connections) {
  const std::map<Inode, Connection> inner = inner_connections(connections, sockets_);
  for (const auto& [inode, where] : sockets_) {
    const auto tcp = connections.find(inode);
    if (tcp == connections.end()) continue;
    if (!inner.contains(inode)) {
      ended_.insert(inode);
      if (!rules_.ends_connections)
        problem(where + " is an open TCP connection (" + tcp->second.text() +
                "): let the program close the connection, or use --connections reset, which resets the "
                "connection");
      continue;
    }
    BoundSocket& end = connected_.emplace_back();
    end.protocol = internet_[inode];
    end.address = tcp->second.local;
  }
}

// Checks that no other process holds the socket of a connection that ends. The connection would end for that
// process, too.
Result<void> Collector::check_ended_connections(pid_t root) {
  if (!rules_.ends_connections || ended_.empty()) return ok();
  CKPT_TRY(tree, processes_of(root));
  std::set<pid_t> own = {tree.begin(), tree.end()};
  own.insert(::getpid());  // the agent itself, because another of its threads may have borrowed a descriptor
  const std::map<Inode, Owner> owners = owners_of(ended_, "socket", own);
  CKPT_TRY(grown, processes_of(root));
  own.insert(grown.begin(), grown.end());  // adds processes that the program may have forked in the meantime
  for (const auto& [inode, owner] : owners) {
    if (own.contains(owner.pid) || has_ended(owner.pid)) continue;
    problem(sockets_[inode] + " is an open TCP connection that " + owner.name + " (process " +
            std::to_string(owner.pid) +
            "), outside of the job, also has open: let one of the two programs close the connection");
  }
  return ok();
}

Result<void> Collector::check_sockets(pid_t root) {
  if (sockets_.empty()) return ok();
  CKPT_TRYV(check_internet_sockets(root));
  CKPT_TRYV(note_bound_sockets(root));
  CKPT_TRY(named, named_sockets_of(root, rules_.own));
  socket_folders_ = std::move(named.folders);
  CKPT_TRY(connections, tcp_connections(root));
  CKPT_TRY(peers, unix_peers());
  check_connections(connections);
  CKPT_TRYV(check_ended_connections(root));
  std::set<Inode> outside;
  for (const auto& [inode, where] : sockets_) {
    if (const auto peer = peers.find(inode); peer != peers.end() && !sockets_.contains(peer->second))
      outside.insert(peer->second);
  }
  if (outside.empty()) return ok();
  CKPT_TRY(tree, processes_of(root));
  const std::map<Inode, Owner> owners = owners_of(outside, "socket", {tree.begin(), tree.end()});
  const auto& driver = rules_.driver_processes;
  for (const auto& [inode, where] : sockets_) {
    const auto peer = peers.find(inode);
    if (peer == peers.end() || !outside.contains(peer->second)) continue;
    const auto owner = owners.find(peer->second);
    if (owner == owners.end()) {
      problem(where + " is a socket to a process outside of the job");
    } else if (std::find(tree.begin(), tree.end(), owner->second.pid) != tree.end()) {
      continue;  // the peer was opened after the program's descriptors were read
    } else if (owner->second.pid != rules_.keeper &&
               std::find(driver.begin(), driver.end(), owner->second.name) == driver.end()) {
      problem(where + " is a socket to " + owner->second.name + " (process " +
              std::to_string(owner->second.pid) + ")");
    }
  }
  return ok();
}

}  // namespace ckpt::agent::host
