// SPDX-License-Identifier: Apache-2.0
// Lists the files of a node that a process tree needs. They are collected at the source before a move and
// compared at the target. The list also names the obstacles to a move. CRIU opens files by path at the
// target. A missing or different file must therefore be found before anything is paused.
// Threads: any. The functions read many files under /proc and block for milliseconds (use offload()). Errors:
// kRefused names each obstacle (at most kMaxProblems). A list from the other node is not trusted. The decoder
// and check_files() check its size and form.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host_process/cache_files/cache_files.h"
#include "agent/host_process/files/file_compare.h"
#include "agent/host_process/files/file_fact.h"
#include "agent/host_process/files/file_locks.h"
#include "agent/host_process/named_memory/named_memory.h"
#include "agent/host_process/processes/name_owner.h"
#include "agent/host_process/processes/own_namespaces.h"
#include "agent/host_process/sockets/named_sockets.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxFiles = 65536;
inline constexpr std::size_t kMaxBound = 4096;
inline constexpr std::size_t kMaxProblems = 8;

// A TCP or UDP socket of the program that listens or is bound to a local address.
struct BoundSocket {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "BoundSocket";
  std::string protocol;  // protocol of the socket, such as "TCP" or "UDPv6"
  std::string address;   // address of the socket, such as "0.0.0.0:8080"
  template <class A>
  decltype(auto) fields(A& a) {
    return a(protocol, address);
  }
  friend bool operator==(const BoundSocket&, const BoundSocket&) = default;
};

struct FileList {
  // Version 2 adds the memory, 3 the sockets, 4 named memory, named sockets and connections, 5 cache files,
  // 6 file identities and locks, and 7 the connections that end. An older source does not send the later
  // fields.
  static constexpr std::uint8_t kVersion = 7, kCompat = 1;
  static constexpr std::string_view kName = "FileList";
  std::vector<FileFact> files;     // files by path; each file is listed once
  std::uint64_t memory_bytes = 0;  // memory of the processes in bytes, as a dump would store it
  std::string network;             // text that identifies the network of the program's sockets (network_of()
                                   // in sockets.h)
  std::vector<BoundSocket> bound;
  std::vector<BoundSocket> connected;  // both ends of each connection within the program
  std::vector<SocketFolder> socket_folders;
  NamedMemory named;       // named memory, which travels; its files are also among `files`, because an older
                           // target must have them
  CacheFiles cached;       // cache files, which travel; they are also among `files`
  std::string kernel;      // running_kernel() of the source
  std::uint64_t seed = 0;  // random seed of the samples (content_digest.h)
  std::vector<FolderFact> folders;  // folders of the files in `files`
  std::vector<FileLock> locks;
  std::uint64_t ended_connections = 0;  // number of connections that the move ends
                                        // (FileRules::ends_connections)
  template <class A>
  decltype(auto) fields(A& a) {
    return a(files, memory_bytes, network, bound, named, connected, socket_folders, cached, kernel, seed,
             folders, locks, ended_connections);
  }
};

// Facts about the move that decide how the program's files are checked.
struct FileRules {
  std::string own_log;  // the program's log; its descriptors get another file at the target
  pid_t keeper = 0;     // process id of the keeper; sockets to the keeper are closed before the dump
  // Names of the driver's processes, as in /proc/PID/comm. Sockets to these processes are no obstacle,
  // because the driver's checkpoint closes them.
  std::vector<std::string> driver_processes;
  // The prefixes of names of the driver's files other than /dev/nvidia*, and the one process that may have
  // them open. These files are no obstacle, because the driver's checkpoint of that process closes them.
  std::vector<std::string> driver_files;
  pid_t gpu_process = 0;
  std::vector<std::string> cache_folders;  // cache folders of this node (cache_files.h)
  OwnNamespaces own;  // the mounts that only the job has; files in them are neither collected nor compared
  NameRules names;    // rules that decide which names on this node belong to the job
  // The reason why CRIU on this node cannot save TCP and UDP sockets, including listening ones: "CRIU 4.1
  // cannot save …". An empty string means that such sockets can be moved.
  std::string no_internet;
  // True if the move ends connections to programs outside of the tree. Otherwise each such connection is an
  // obstacle.
  bool ends_connections = false;
  // True for an image that is stored. A program that is restored from the image finds its files in their
  // state at that time. Therefore the content of files that the program writes is not read.
  bool for_image = false;
};

Result<FileList> collect_files(pid_t root, const FileRules& rules);
// Counts all obstacles, without a limit. Error kNotFound means that the process tree no longer exists.
Result<std::size_t> count_obstacles(pid_t root, const FileRules& rules);

struct CheckedFiles {
  std::set<std::string> same;  // paths that name the same file at both nodes
};
// Checks at the target that every file of the list equals the source's file (file_compare.h), and that its
// locks can be taken. If the target has another network, the program's sockets must be free there. The target
// must have enough memory for the image and the restored processes. Missing cache files can be created in
// this node's `cache_folders`. A missing or different file is no obstacle in a folder that both nodes share,
// because it was removed or replaced at the source, too. The program has closed that file since, or the file
// travels with the image.
Result<CheckedFiles> check_files(const FileList& list, const std::vector<std::string>& cache_folders = {},
                                 Compared when = Compared::kNow);

}  // namespace ckpt::agent::host
