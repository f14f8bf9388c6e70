// SPDX-License-Identifier: Apache-2.0
// Unix sockets of a process tree that are bound to a path. Each of Python's forkserver and managers has such
// a socket, in a folder of /tmp that it creates. CRIU binds the path again, and gpumigrate transfers the
// folder.
// Threads: any. The functions read files under /proc (use offload()). Errors: kNotFound if the tree no longer
// exists. kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host_process/processes/own_namespaces.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct SocketFolder {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "SocketFolder";
  std::string path;
  std::uint32_t mode = 0;  // the folder's permission bits only
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(path, mode, uid, gid);
  }
};

struct SocketFolders {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "SocketFolders";
  std::vector<SocketFolder> folders;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(folders);
  }
};

struct NamedSockets {
  std::vector<std::string> paths;
  std::vector<SocketFolder> folders;  // folders of the paths; each folder is listed once
};
// Returns the sockets of the tree, without those in the job's own folders.
Result<NamedSockets> named_sockets_of(pid_t root, const OwnNamespaces& own = {});

// Returns a text for each folder that this target lacks and that make_socket_folders() cannot create. A
// folder is created only within a folder in which every user may create files (/tmp).
std::vector<std::string> why_no_folder(const std::vector<SocketFolder>& folders);
// Records the folders in the image's folder. Call this function at the source, after the dump.
Result<void> save_socket_folders(pid_t root, const std::string& images, const OwnNamespaces& own = {});
// Creates the missing folders of an image and returns their paths. A failure leaves no folder behind.
// kCorrupt means that the image is malformed.
Result<std::vector<std::string>> make_socket_folders(const std::string& images);
// Removes the folders of an unused restore, with the sockets in them.
void remove_folders(const std::vector<std::string>& made);

// Removes paths to which no socket is bound, in or below a folder in which every user may create files. The
// function then removes their empty folders. Call this function at the source, after all processes of the
// tree have exited.
void remove_left(const NamedSockets& sockets);

}  // namespace ckpt::agent::host
