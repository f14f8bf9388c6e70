// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/file_locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <sstream>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxInfoBytes = 4u << 20;
constexpr std::string_view kLockLine = "lock:";

std::optional<LockKind> lock_kind_of(const std::string& word) {
  if (word == "FLOCK") return LockKind::kFlock;
  if (word == "POSIX") return LockKind::kPosix;
  if (word == "OFDLCK") return LockKind::kOfOpenFile;
  if (word == "LEASE") return LockKind::kLease;
  return std::nullopt;
}

const char* lock_name_of(LockKind kind) {
  switch (kind) {
    case LockKind::kFlock:
      return "flock";
    case LockKind::kPosix:
      return "fcntl or lockf";
    case LockKind::kOfOpenFile:
      return "F_OFD_SETLK";
    case LockKind::kLease:
      return "F_SETLEASE";
  }
  return "";
}

// Parses a line such as "1: POSIX  ADVISORY  WRITE 41 fe:00:262153 0 EOF". The caller has removed the prefix
// kLockLine.
std::optional<FileLock> lock_in(const std::string& line) {
  std::istringstream words(line);
  std::string number, kind, how, access, owner, file, start, end;
  if (!(words >> number >> kind >> how >> access >> owner >> file >> start >> end)) return std::nullopt;
  const auto known = lock_kind_of(kind);
  if (!known) return std::nullopt;
  FileLock lock;
  lock.kind = *known;
  lock.excludes = access != "READ";
  lock.start = std::strtoull(start.c_str(), nullptr, 10);
  lock.end = end == "EOF" ? 0 : std::strtoull(end.c_str(), nullptr, 10);
  return lock;
}

std::string lock_is_taken(const FileLock& lock) {
  return lock.text() +
         ", and the lock is held at the target, too: the moved program would wait for the lock. Let the "
         "program release the lock, or keep a separate file on each node's local disk";
}

std::string lock_is_refused(const FileLock& lock) {
  return lock.text() + ", which the target refuses (" + std::strerror(errno) + ")";
}

std::string try_flock(int file, const FileLock& lock) {
  if (::flock(file, (lock.excludes ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return {};
  return errno == EWOULDBLOCK ? lock_is_taken(lock) : lock_is_refused(lock);
}

// Checks whether the lock is free, without acquiring it. The check uses a lock of an open file description,
// because such a lock conflicts with locks of every other kind.
std::string ask_range(int file, const FileLock& lock) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (lock.start > kMax || (lock.end != 0 && (lock.end < lock.start || lock.end > kMax))) return {};
  struct flock range {};
  range.l_type = lock.excludes ? F_WRLCK : F_RDLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(lock.start);
  range.l_len = lock.end == 0 ? 0 : static_cast<off_t>(lock.end - lock.start + 1);
  if (::fcntl(file, F_OFD_GETLK, &range) != 0) return lock_is_refused(lock);
  return range.l_type == F_UNLCK ? std::string() : lock_is_taken(lock);
}

}  // namespace

std::string FileLock::text() const {
  return path + " is locked for " + (excludes ? "writing" : "reading") + " (" + lock_name_of(kind) +
         ") by process " + std::to_string(pid) + " (descriptor " + std::to_string(descriptor) + ")";
}

std::vector<FileLock> locks_in(const std::string& info, pid_t pid, int descriptor, const std::string& path) {
  std::vector<FileLock> locks;
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kLockLine)) continue;
    auto lock = lock_in(line.substr(kLockLine.size()));
    if (!lock) continue;
    lock->path = path;
    lock->pid = static_cast<std::uint32_t>(pid);
    lock->descriptor = static_cast<std::uint32_t>(descriptor);
    locks.push_back(std::move(*lock));
  }
  return locks;
}

void TreeLocks::note(pid_t pid, int descriptor, const std::string& path) {
  const Result<std::string> info =
      read_file("/proc/" + std::to_string(pid) + "/fdinfo/" + std::to_string(descriptor), kMaxInfoBytes);
  if (!info.has_value() || info->find(kLockLine) == std::string::npos) return;
  for (FileLock& lock : locks_in(*info, pid, descriptor, path)) {
    const bool is_new = known_.emplace(lock.kind, lock.excludes, lock.path, lock.start, lock.end).second;
    if (is_new && locks_.size() < kMaxLocks) locks_.push_back(std::move(lock));
  }
}

std::vector<std::string> TreeLocks::problems() const {
  std::vector<std::string> texts;
  for (const FileLock& lock : locks_) {
    if (lock.kind == LockKind::kLease)
      texts.push_back(lock.text() + ", a lease, which cannot be moved: let the program release it");
  }
  return texts;
}

std::string why_not_taken(const FileLock& lock) {
  if (lock.kind == LockKind::kLease) return lock.text() + ", a lease, which cannot be moved";
  struct stat facts {};
  if (::stat(lock.path.c_str(), &facts) != 0 || (!S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)))
    return {};
  UniqueFd file(::open(lock.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) file.reset(::open(lock.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return {};  // another check reports the missing file
  return lock.kind == LockKind::kFlock ? try_flock(file.get(), lock) : ask_range(file.get(), lock);
}

}  // namespace ckpt::agent::host
