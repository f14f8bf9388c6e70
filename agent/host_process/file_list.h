// SPDX-License-Identifier: Apache-2.0
// The files that a process tree needs of its node, collected at the source before a move and compared at
// the target. It also names the obstacles to a move. CRIU opens files by path at the target:
// one that is missing or another there must be found before anything is paused. Threads: any; both read many
// files under /proc and block for milliseconds (offload()). Errors: kRefused naming each obstacle (at most
// kMaxProblems); the other node's list is hostile and bounded by the decoder and by check_files().
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
#include "agent/host_process/sockets/named_sockets.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxFiles = 65536;
inline constexpr std::size_t kMaxBound = 4096;
inline constexpr std::size_t kMaxProblems = 8;

// A TCP or UDP socket that listens, or is bound.
struct BoundSocket {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "BoundSocket";
  std::string protocol;  // "TCP", "UDPv6"
  std::string address;   // "0.0.0.0:8080"
  template <class A>
  decltype(auto) fields(A& a) {
    return a(protocol, address);
  }
  friend bool operator==(const BoundSocket&, const BoundSocket&) = default;
};

struct FileList {
  // 2: the memory, 3: the sockets, 4: memory and sockets with a name, connections, 5: files of caches, 6:
  // what tells files apart, and locks; an older source sends none
  static constexpr std::uint8_t kVersion = 6, kCompat = 1;
  static constexpr std::string_view kName = "FileList";
  std::vector<FileFact> files;     // by path, each once
  std::uint64_t memory_bytes = 0;  // of the processes, as a dump would have it
  std::string network;             // the program's network (sockets.h), in which it holds its sockets
  std::vector<BoundSocket> bound;
  std::vector<BoundSocket> connected;  // ends of connections within the program
  std::vector<SocketFolder> socket_folders;
  NamedMemory named;       // travels; its files are among `files` for an older target, which must have them
  CacheFiles cached;       // travel; among `files`, too
  std::string kernel;      // running_kernel() of the source
  std::uint64_t seed = 0;  // of samples (content_digest.h)
  std::vector<FolderFact> folders;  // of `files`
  std::vector<FileLock> locks;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(files, memory_bytes, network, bound, named, connected, socket_folders, cached, kernel, seed,
             folders, locks);
  }
};

// Facts of the move by which the program's files are judged.
struct FileRules {
  std::string own_log;  // the program's log: its descriptors get another file at the target
  pid_t keeper = 0;     // sockets to it are closed before the dump
  // Names (as in /proc/PID/comm) of the driver's processes: sockets to them are closed by the driver's
  // checkpoint.
  std::vector<std::string> driver_processes;
  // The beginnings of names of the driver's files beside /dev/nvidia*, and the one process whose checkpoint
  // closes them.
  std::vector<std::string> driver_files;
  pid_t gpu_process = 0;
  std::vector<std::string> cache_folders;  // cache_files.h
  NameRules names;                         // which names on this node are the job's
  // "CRIU 4.1 cannot save …": why a TCP or UDP socket, also one that only listens, cannot be moved from here.
  // Empty: it can.
  std::string no_internet;
  // True for an image that is kept. A program that is restored from it finds its files as they are then, so
  // the content of files that it writes is not read.
  bool for_image = false;
};

Result<FileList> collect_files(pid_t root, const FileRules& rules);
// Counts all obstacles, without a limit. Errors: kNotFound, the tree is gone.
Result<std::size_t> count_obstacles(pid_t root, const FileRules& rules);

struct CheckedFiles {
  std::set<std::string> same;  // paths that name one and the same file at both nodes
};
// Checks at the target that every file of the list is the same as at the source (file_compare.h) and that its
// locks can be taken. The program's sockets must be free if this is another network than theirs. There must
// be memory for the image and the restored processes. Files of caches that are missing can be made in this
// node's `cache_folders`. A file that is missing, or another one, in a folder that both nodes share was
// removed or replaced at the source, too. The program has closed it since, or it travels with the image.
Result<CheckedFiles> check_files(const FileList& list, const std::vector<std::string>& cache_folders = {},
                                 Compared when = Compared::kNow);

}  // namespace ckpt::agent::host
