// SPDX-License-Identifier: Apache-2.0
// The requests of one side of a FrameStream to the other side's checkpoint store, and the answers. They are
// the operations of files.h, one at a time. The first message of a connection is FileHello, and nothing is
// done before it was accepted. The connection's key determines the grant.
//
// Paths are relative to the checkpoint store's folder and are checked by check_path(). A grant is for one
// job, and no other part of the checkpoint store can be named.
// Threads: plain values. Errors: kProtocol from decoding (wire/codec.h). The error of a failed operation is
// sent in FileReply.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::checkpoint_store {

inline constexpr std::size_t kFileTokenBytes = 32;
inline constexpr std::size_t kMaxRequestBytes = 4096;  // the maximum size of a request's head
inline constexpr std::size_t kMaxPathBytes = 512;

// The first message of a connection. Connections with the same `session` share open files. The session and
// its locks end when the last connection closes.
struct FileHello {
  static constexpr std::uint8_t kVersion = 2, kCompat = 2;
  std::uint64_t session = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session);
  }
};

enum class FileOp : std::uint8_t {
  kInvalid = 0,
  kCreate = 1,  // path -> handle
  kOpen,        // path -> handle
  kWrite,       // requires handle, offset and payload
  kRead,        // handle, offset, bytes -> payload
  kSize,        // handle -> value
  kSync,        // requires a handle
  kClose,       // requires a handle, which may be that of a lock
  kRename,      // requires path and to
  kRemove,      // requires a path
  kMakeFolder,
  kRemoveFolder,
  kList,  // path -> entries
  kSyncFolder,
  kLock,  // path -> handle
};
[[nodiscard]] constexpr bool is_known(FileOp op) {
  return op >= FileOp::kCreate && op <= FileOp::kLock;
}

struct FileRequest {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  FileRequest() = default;
  explicit FileRequest(FileOp operation) : op(operation) {}
  FileOp op = FileOp::kList;
  std::uint64_t handle = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string path;
  std::string to;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(op, handle, offset, bytes, path, to);
  }
};

struct FileEntry {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string name;
  bool is_folder = false;
  std::uint64_t bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(name, is_folder, bytes);
  }
};

struct FileReply {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  bool done = true;
  std::uint8_t error_code = 0;  // an ErrorCode if `done` is false
  std::string message;
  std::uint64_t value = 0;
  std::vector<FileEntry> entries;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(done, error_code, message, value, entries);
  }
};

// Checks the path. Allowed are "", "vault",
// "vault.new", "lock", "jobs", and the paths of a checkpoint store in "jobs/JOB" for this job alone. Returns
// kInvalidArgument for other paths.
Result<void> check_path(const std::string& path, const std::string& job);
// Returns whether the path is a file of the job. A client that writes may make, replace and remove such
// files.
[[nodiscard]] bool is_file_of_job(const std::string& path, const std::string& job);

}  // namespace ckpt::checkpoint_store
