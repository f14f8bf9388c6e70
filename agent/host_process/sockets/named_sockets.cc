// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/sockets/named_sockets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <span>
#include <sstream>

#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/sockets/sockets.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxUnixTableBytes = 64u << 20;
constexpr unsigned kFolderRights = 01777;
constexpr std::size_t kMaxFoldersBytes = 4u << 20;
const std::string kFoldersFile = "/socket-folders.img";

struct BoundPath {
  Inode inode = 0;
  std::string path;
};

// Returns the Unix sockets in the process's network that are bound to a path. The table in /proc/PID/net/unix
// has the heading "Num RefCount Protocol Flags Type St Inode Path".
std::vector<BoundPath> bound_paths(pid_t pid) {
  std::vector<BoundPath> bound;
  const auto table = read_file(proc_path(pid, "/net/unix"), kMaxUnixTableBytes);
  if (!table) return bound;
  std::istringstream lines(*table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, count, protocol, flags, type, state;
    BoundPath found;
    words >> number >> count >> protocol >> flags >> type >> state >> found.inode >> std::ws;
    std::getline(words, found.path);
    if (found.path.starts_with('/')) bound.push_back(std::move(found));
  }
  return bound;
}

bool is_socket(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode);
}

// Checks whether the folder is one such as /tmp, in which every user may create files.
bool is_for_everybody(const fs::path& folder) {
  struct stat facts {};
  return ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) != 0 &&
         (facts.st_mode & S_IWOTH) != 0;
}

// Checks whether the path is in a temporary folder. In other folders, which nodes may share, the path may
// belong to the restored program.
bool is_temporary(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return is_for_everybody(folder) || is_for_everybody(folder.parent_path());
}

bool is_folder(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

Result<void> make_folder(const SocketFolder& folder) {
  if (::mkdir(folder.path.c_str(), 0700) != 0) return Error::from_errno("Cannot create " + folder.path);
  if (::lchown(folder.path.c_str(), folder.uid, folder.gid) == 0 &&
      ::chmod(folder.path.c_str(), folder.mode & kFolderRights) == 0)
    return ok();
  auto failed = Error::from_errno("Cannot create " + folder.path);
  ::rmdir(folder.path.c_str());
  return failed;
}

}  // namespace

Result<NamedSockets> named_sockets_of(pid_t root, const OwnNamespaces& own_namespaces) {
  CKPT_TRY(processes, processes_of(root));
  std::set<Inode> own;
  for (const pid_t pid : processes) {
    std::error_code gone;
    for (const auto& item : fs::directory_iterator(proc_path(pid, "/fd"), gone)) {
      std::error_code failed;
      if (const Inode inode = inode_of(fs::read_symlink(item.path(), failed).string(), "socket"))
        own.insert(inode);
    }
  }
  NamedSockets sockets;
  std::set<std::string> folders;
  for (const BoundPath& bound : bound_paths(root)) {
    if (!own.contains(bound.inode) || own_namespaces.contains(bound.path) || !is_socket(bound.path)) continue;
    sockets.paths.push_back(bound.path);
    const std::string parent = fs::path(bound.path).parent_path().string();
    struct stat facts {};
    if (!folders.insert(parent).second || ::stat(parent.c_str(), &facts) != 0) continue;
    SocketFolder& folder = sockets.folders.emplace_back();
    folder.path = parent;
    folder.mode = facts.st_mode & kFolderRights;
    folder.uid = facts.st_uid;
    folder.gid = facts.st_gid;
  }
  return sockets;
}

std::vector<std::string> why_no_folder(const std::vector<SocketFolder>& folders) {
  std::vector<std::string> problems;
  for (const SocketFolder& folder : folders) {
    if (!is_folder(folder.path) && !is_for_everybody(fs::path(folder.path).parent_path()))
      problems.push_back(folder.path + ", in which the program has a socket, does not exist at the target");
  }
  return problems;
}

Result<void> save_socket_folders(pid_t root, const std::string& images, const OwnNamespaces& own) {
  CKPT_TRY(sockets, named_sockets_of(root, own));
  if (sockets.folders.empty()) return ok();
  SocketFolders list;
  list.folders = std::move(sockets.folders);
  const std::vector<std::byte> bytes = wire::encode(list);
  return write_file_durably(images + kFoldersFile,
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<std::vector<std::string>> make_socket_folders(const std::string& images) {
  std::vector<std::string> made;
  if (::access((images + kFoldersFile).c_str(), F_OK) != 0) return made;
  CKPT_TRY(text, read_file(images + kFoldersFile, kMaxFoldersBytes));
  CKPT_TRY(list, wire::decode<SocketFolders>(std::as_bytes(std::span(text))));
  for (const SocketFolder& folder : list.folders) {
    if (!folder.path.starts_with('/') || folder.path.find('\0') != std::string::npos) {
      remove_folders(made);
      return Error(ErrorCode::kCorrupt, "The image's list of the folders of sockets is malformed");
    }
    if (is_folder(folder.path)) continue;
    if (!is_for_everybody(fs::path(folder.path).parent_path())) {
      remove_folders(made);
      return Error(ErrorCode::kRefused, why_no_folder({folder}).front());
    }
    auto done = make_folder(folder);
    if (!done) {
      remove_folders(made);
      return std::move(done).error();
    }
    made.push_back(folder.path);
  }
  return made;
}

void remove_folders(const std::vector<std::string>& made) {
  for (const std::string& path : made) {
    std::error_code ignored;
    for (const auto& item : fs::directory_iterator(path, ignored)) {
      if (is_socket(item.path().string())) ::unlink(item.path().c_str());
    }
    ::rmdir(path.c_str());
  }
}

void remove_left(const NamedSockets& sockets) {
  std::set<std::string> bound;
  for (const BoundPath& other : bound_paths(::getpid())) bound.insert(other.path);
  for (const std::string& path : sockets.paths) {
    if (is_temporary(path) && !bound.contains(path) && is_socket(path)) ::unlink(path.c_str());
  }
  for (const SocketFolder& folder : sockets.folders) {
    if (is_for_everybody(fs::path(folder.path).parent_path())) ::rmdir(folder.path.c_str());
  }
}

}  // namespace ckpt::agent::host
