// SPDX-License-Identifier: Apache-2.0
// Locks on files that the program holds: flock(2), fcntl(2) and locks of an open file description. A lock on
// a file that is separate on each node moves. If the target sees the same file, the stopped original holds
// the lock, and the copy would wait for the lock. The target therefore tries each lock without waiting. A
// file lease (F_SETLEASE) cannot move, because the copy's open of the file would break the lease.
// Threads: any. The functions read files under /proc (use offload()). Errors: none. An obstacle is a text for
// the user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxLocks = 65536;

enum class LockKind : std::uint8_t { kFlock = 1, kPosix, kOfOpenFile, kLease };
[[nodiscard]] constexpr bool is_known(LockKind kind) {
  return kind >= LockKind::kFlock && kind <= LockKind::kLease;
}

struct FileLock {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "FileLock";
  LockKind kind = LockKind::kFlock;
  bool excludes = false;  // true for a write lock
  std::string path;
  std::uint64_t start = 0;
  std::uint64_t end = 0;  // position of the last byte; 0 means the end of the file
  std::uint32_t pid = 0;  // id of the process that holds the lock through its descriptor `descriptor`
  std::uint32_t descriptor = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, excludes, path, start, end, pid, descriptor);
  }
  [[nodiscard]] std::string text() const;
};

// Returns the locks in `info`, the text of /proc/PID/fdinfo/N.
[[nodiscard]] std::vector<FileLock> locks_in(const std::string& info, pid_t pid, int descriptor,
                                             const std::string& path);

// The locks of a process tree's descriptors. Each lock is listed once.
class TreeLocks {
 public:
  void note(pid_t pid, int descriptor, const std::string& path);
  // Returns a text for each lock that cannot move. The result is empty if all locks can move.
  [[nodiscard]] std::vector<std::string> problems() const;
  [[nodiscard]] const std::vector<FileLock>& locks() const noexcept { return locks_; }

 private:
  std::vector<FileLock> locks_;
  std::set<std::tuple<LockKind, bool, std::string, std::uint64_t, std::uint64_t>> known_;
};

// Returns the reason why the lock cannot be taken at this target. An empty string means that it can be taken.
// The function does not keep the lock.
[[nodiscard]] std::string why_not_taken(const FileLock& lock);

}  // namespace ckpt::agent::host
