// SPDX-License-Identifier: Apache-2.0
// Locks on files that the program holds: flock(2), fcntl(2)'s and those of an open file. A lock on a file
// that each node has for itself moves. If the target sees the file, too, the stopped original holds the lock,
// and its copy would wait for it. So the target tries each lock, without waiting. A lease (F_SETLEASE) cannot
// move: the copy's open of the file would break it.
// Threads: any; reads files under /proc (offload()). Errors: none; what is in the way is a text for the user.
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
  bool excludes = false;  // a lock for writing
  std::string path;
  std::uint64_t start = 0;
  std::uint64_t end = 0;  // the last byte; 0: to the end of the file
  std::uint32_t pid = 0;  // of a process that has it, and its descriptor
  std::uint32_t descriptor = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, excludes, path, start, end, pid, descriptor);
  }
  [[nodiscard]] std::string text() const;
};

// The locks that `info` names, the text of /proc/PID/fdinfo/N.
[[nodiscard]] std::vector<FileLock> locks_in(const std::string& info, pid_t pid, int descriptor,
                                             const std::string& path);

// The locks of a tree's descriptors, each once.
class TreeLocks {
 public:
  void note(pid_t pid, int descriptor, const std::string& path);
  // Returns a text for each lock that cannot move.
  [[nodiscard]] std::vector<std::string> problems() const;
  [[nodiscard]] const std::vector<FileLock>& locks() const noexcept { return locks_; }

 private:
  std::vector<FileLock> locks_;
  std::set<std::tuple<LockKind, bool, std::string, std::uint64_t, std::uint64_t>> known_;
};

// Returns why the lock cannot be taken at this target. Empty: it can. The lock is not kept.
[[nodiscard]] std::string why_not_taken(const FileLock& lock);

}  // namespace ckpt::agent::host
