// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/log/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace ckpt::logging {
namespace {

UniqueFd open_log(const std::string& path, int flags = 0) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0600));
}

// Returns the path of a regular file that is opened for appending; otherwise returns an empty string.
std::string path_of(int fd) {
  struct stat status {};
  const int flags = ::fcntl(fd, F_GETFL);
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || flags < 0 || (flags & O_APPEND) == 0)
    return {};
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length <= 0 || static_cast<std::size_t>(length) == path.size()) return {};
  return {path.data(), static_cast<std::size_t>(length)};
}

}  // namespace

Result<LogFile> LogFile::open(const std::string& path, LogLimits limits) {
  UniqueFd file = open_log(path);
  if (!file) return Error::from_errno("Cannot open the log " + path);
  const int fd = file.get();
  return LogFile(std::move(file), fd, path_of(fd), limits);
}

LogFile LogFile::of_stderr(LogLimits limits) {
  return {UniqueFd(), STDERR_FILENO, path_of(STDERR_FILENO), limits};
}

// Checks whether the path still names the open file: another process that writes to it may have rotated it.
bool LogFile::is_at_path() const {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd_, &open) == 0 && ::stat(path_.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

void LogFile::rotate() {
  if (is_at_path()) {
    for (unsigned number = limits_.retained; number > 1; --number)
      (void)::rename((path_ + "." + std::to_string(number - 1)).c_str(),
                     (path_ + "." + std::to_string(number)).c_str());
    const bool is_aside = limits_.retained == 0 ? ::unlink(path_.c_str()) == 0
                                                : ::rename(path_.c_str(), (path_ + ".1").c_str()) == 0;
    if (!is_aside) return;
  }
  const UniqueFd next = open_log(path_, O_NOFOLLOW);
  if (!next) return;
  // Standard error stays open in programs that this process starts.
  if (::dup3(next.get(), fd_, fd_ == STDERR_FILENO ? 0 : O_CLOEXEC) < 0) return;
}

void LogFile::write(std::string_view line) {
  struct stat status {};
  const bool is_full = !path_.empty() && ::fstat(fd_, &status) == 0 &&
                       static_cast<std::size_t>(status.st_size) + line.size() > limits_.bytes &&
                       status.st_size > 0;
  if (is_full) rotate();
  while (!line.empty()) {
    const ssize_t written = ::write(fd_, line.data(), line.size());
    if (written <= 0) return;
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace ckpt::logging
