// SPDX-License-Identifier: Apache-2.0
// The fopen that replaces libc's for one kind of file: /proc/self/task/TID of a thread of this process.
// NVIDIA's driver writes the names of its threads there (580.159.04: cuInit fails with 304 if it cannot). A
// job's process has its own PID namespace and the node's /proc, in which its threads have other numbers. All
// other paths, and existing files, are passed to libc.
// Threads: any. Errors: as fopen's. Source of the numbers: "NSpid" of proc_pid_status(5), innermost last.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "libckpt/inprocess/shim/core/lookup.h"

namespace ckpt::shim {
namespace {

constexpr char kThreads[] = "/proc/self/task/";
constexpr std::size_t kThreadsLength = sizeof kThreads - 1;
constexpr std::size_t kMaxPath = 128;
constexpr std::size_t kMaxStatus = 8192;

using Open = FILE* (*)(const char* path, const char* mode);

// Returns the number that the thread `name` of /proc/self/task has in its own PID namespace. Returns 0 if it
// is unknown.
long own_number(const char* name) noexcept {
  char path[kMaxPath];
  char text[kMaxStatus];
  std::snprintf(path, sizeof path, "%s%.20s/status", kThreads, name);
  const int status = ::open(path, O_RDONLY | O_CLOEXEC);
  if (status < 0) return 0;
  const ssize_t length = ::read(status, text, sizeof text - 1);
  ::close(status);
  if (length <= 0) return 0;
  text[length] = '\0';
  char* const line = std::strstr(text, "\nNSpid:");
  if (line == nullptr) return 0;
  char* const end = std::strchr(line + 1, '\n');
  if (end == nullptr) return 0;
  *end = '\0';
  const char* const last = std::strrchr(line, '\t');
  return last == nullptr ? 0 : std::strtol(last + 1, nullptr, 10);
}

// Stores in `found` the name of `path` in the mounted /proc. Returns false if the path is not of a thread of
// this process.
bool find_thread_file(const char* path, char (&found)[kMaxPath]) noexcept {
  char* rest = nullptr;
  const long wanted = std::strtol(path + kThreadsLength, &rest, 10);
  if (wanted <= 0 || *rest != '/') return false;
  DIR* const threads = ::opendir(kThreads);
  if (threads == nullptr) return false;
  bool is_found = false;
  for (const dirent* entry = ::readdir(threads); entry != nullptr && !is_found; entry = ::readdir(threads)) {
    if (own_number(entry->d_name) != wanted) continue;
    const int length = std::snprintf(found, kMaxPath, "%s%.20s%s", kThreads, entry->d_name, rest);
    is_found = length > 0 && static_cast<std::size_t>(length) < kMaxPath;
  }
  ::closedir(threads);
  return is_found;
}

Open open_of_libc(const char* name) noexcept {
  return reinterpret_cast<Open>(loader_symbol(RTLD_NEXT, name));
}

FILE* open_with(Open open, const char* path, const char* mode) noexcept {
  if (open == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  FILE* const file = open(path, mode);
  if (file != nullptr || errno != ENOENT || path == nullptr ||
      std::strncmp(path, kThreads, kThreadsLength) != 0)
    return file;
  char found[kMaxPath];
  if (find_thread_file(path, found)) return open(found, mode);
  errno = ENOENT;
  return nullptr;
}

}  // namespace
}  // namespace ckpt::shim

extern "C" {
FILE* fopen(const char* path, const char* mode) {
  static const ckpt::shim::Open open = ckpt::shim::open_of_libc("fopen");
  return ckpt::shim::open_with(open, path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  static const ckpt::shim::Open open = ckpt::shim::open_of_libc("fopen64");
  return ckpt::shim::open_with(open, path, mode);
}
}
