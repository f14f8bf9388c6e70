// SPDX-License-Identifier: Apache-2.0
// Unix sockets of a process tree that are bound to a path. Python's forkserver and managers have one each, in
// a folder of /tmp that they make. CRIU binds the path again; the folder travels.
// Threads: any; reads files under /proc (offload()). Errors: kNotFound where the tree is gone, kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct SocketFolder {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "SocketFolder";
  std::string path;
  std::uint32_t mode = 0;  // permission bits only
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
  std::vector<SocketFolder> folders;  // folders of the paths, each once
};
Result<NamedSockets> named_sockets_of(pid_t root);

// Returns a text for each folder that this target lacks and that is not made, because it does not lie in a
// folder in which everybody may make files (/tmp).
std::vector<std::string> why_no_folder(const std::vector<SocketFolder>& folders);
// Notes the folders in the image's folder. Called at the source, after the dump.
Result<void> save_socket_folders(pid_t root, const std::string& images);
// Makes the folders of an image that are missing, and returns their paths. A failure leaves none. kCorrupt:
// the image is malformed.
Result<std::vector<std::string>> make_socket_folders(const std::string& images);
// Removes the folders of a restore that is not used, with the sockets in them.
void remove_folders(const std::vector<std::string>& made);

// Removes paths to which no socket is bound, in or below a folder in which everybody may make files, and then
// their empty folders. Called at the source, once the tree has ended.
void remove_left(const NamedSockets& sockets);

}  // namespace ckpt::agent::host
