// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/memory_folder.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace ckpt::agent::host {
namespace {

bool is_memory(const std::string& path) {
  struct statfs facts {};
  return ::statfs(path.c_str(), &facts) == 0 &&
         (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC) &&
         ::access(path.c_str(), W_OK | X_OK) == 0;
}

// Checks that the path is this user's own folder. The function does not follow a link, and refuses another
// user's folder of that name.
bool is_own_folder(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid();
}

void remove(const std::string& path) {
  std::error_code ignored;
  if (is_own_folder(path)) std::filesystem::remove_all(path, ignored);
}

// The character between a folder's name and its random part, which nobody can predict.
constexpr char kMark = '~';

std::string path_of(const std::string& place, const std::string& name) {
  return place + "/gpumigrate-" + name;
}

}  // namespace

Result<std::string> find_memory_place(const std::string& wanted) {
  if (!wanted.empty()) {
    if (is_memory(wanted)) return wanted;
    return Error(ErrorCode::kNotSupported, wanted + " is not a tmpfs that this agent may write to");
  }
  for (const char* place : {"/dev/shm", "/run"}) {
    if (is_memory(place)) return std::string(place);
  }
  return Error(ErrorCode::kNotSupported,
               "Neither /dev/shm nor /run is a tmpfs that this agent may write to: mount one for the images "
               "of processes");
}

Result<MemoryFolder> MemoryFolder::create(const std::string& place, const std::string& name,
                                          std::uint64_t needed_bytes) {
  remove_memory_folder(place, name);
  struct statfs facts {};
  if (::statfs(place.c_str(), &facts) != 0)
    return Error::from_errno("Cannot read the free space of " + place);
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(facts.f_bavail) * facts.f_bsize;
  // A ramfs reports no size, so its free memory is not checked.
  if (facts.f_blocks != 0 && free_bytes < needed_bytes) {
    return Error(ErrorCode::kOutOfMemory,
                 place + " has " + std::to_string(free_bytes >> 20) + " MiB free and " +
                     std::to_string(needed_bytes >> 20) +
                     " MiB are needed for the process: remount the tmpfs with a larger size");
  }
  std::string path = path_of(place, name) + kMark + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return Error::from_errno("Cannot create " + path);
  return MemoryFolder(path);
}

MemoryFolder::MemoryFolder(MemoryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

MemoryFolder& MemoryFolder::operator=(MemoryFolder&& other) noexcept {
  if (this != &other) {
    if (!path_.empty()) remove(path_);
    path_ = std::exchange(other.path_, {});
  }
  return *this;
}

MemoryFolder::~MemoryFolder() {
  if (!path_.empty()) remove(path_);
}

std::string MemoryFolder::keep() noexcept {
  return std::exchange(path_, {});
}

void remove_memory_folders(const std::string& place, const std::string& begin,
                           const std::function<bool(const std::string& rest)>& unused,
                           const std::function<void(const std::string& path)>& before) {
  std::error_code ignored;
  const std::string named = path_of(place, begin);
  for (const auto& item : std::filesystem::directory_iterator(place, ignored)) {
    const std::string path = item.path().string();
    if (!path.starts_with(named)) continue;
    const std::string rest = path.substr(named.size());
    if (!unused(rest.substr(0, rest.find(kMark)))) continue;
    if (before) before(path);
    remove(path);
  }
}

void remove_memory_folder(const std::string& place, const std::string& name) {
  remove_memory_folders(place, name, [](const std::string& rest) { return rest.empty(); });
}

}  // namespace ckpt::agent::host
