// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/backing/file_behind.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

namespace cudasim {
namespace {

struct FileId {
  dev_t device;
  ino_t inode;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

std::optional<FileId> find_mapped(std::uint64_t address, std::uint64_t bytes) {
  const std::unique_ptr<std::FILE, CloseFile> maps(std::fopen("/proc/self/maps", "re"));
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;
    std::uint64_t inode = 0;
    unsigned major = 0;
    unsigned minor = 0;
    char access[5];
    // The remainder of a long line does not match this format.
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &begin, &end, access,
                    &offset, &major, &minor, &inode) != 7)
      continue;
    if (begin > address || end <= address) continue;
    if (begin != address || end < address + bytes || access[3] != 's' || offset != 0) return std::nullopt;
    return FileId{makedev(major, minor), inode};
  }
  return std::nullopt;
}

}  // namespace

int file_behind(std::uint64_t address, std::uint64_t bytes) {
  const std::optional<FileId> wanted = find_mapped(address, bytes);
  if (!wanted) return -1;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir("/proc/self/fd"));
  while (folder != nullptr) {
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    const int fd = static_cast<int>(std::strtol(entry->d_name, nullptr, 10));
    struct stat facts {};
    if (entry->d_name[0] == '.' || ::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    if (facts.st_dev == wanted->device && facts.st_ino == wanted->inode)
      return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  }
  return -1;
}

}  // namespace cudasim
