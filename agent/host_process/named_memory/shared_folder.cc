// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/named_memory/shared_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string_view>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxMapsBytes = 64u << 20;
constexpr std::string_view kFolder = kSharedFolder;
constexpr std::string_view kDeleted = " (deleted)";

dev_t device() {
  struct stat facts {};
  return ::stat(kSharedFolder, &facts) == 0 ? facts.st_dev : 0;
}

bool is_direct(std::string_view path) {
  return path.starts_with(kFolder) && path.find('/', kFolder.size()) == std::string_view::npos;
}

// Checks whether a hexadecimal text such as "00:1a" names the device `wanted`.
bool is_device(const std::string& text, dev_t wanted) {
  char* end = nullptr;
  const unsigned long high = std::strtoul(text.c_str(), &end, 16);
  return *end == ':' && high == major(wanted) && std::strtoul(end + 1, nullptr, 16) == minor(wanted);
}

void note(std::map<std::uint64_t, bool>& found, std::uint64_t inode, bool lost) {
  bool& is_lost = found[inode];
  is_lost = is_lost || lost;
}

void read_maps(pid_t pid, dev_t wanted, std::map<std::uint64_t, bool>& found) {
  const Result<std::string> maps = read_file(proc_path(pid, "/maps"), kMaxMapsBytes);
  if (!maps.has_value() || maps->find(kFolder) == std::string::npos) return;
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(kFolder);
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    std::istringstream words(line);
    std::string range, permissions, offset, where;
    std::uint64_t inode = 0;
    words >> range >> permissions >> offset >> where >> inode;
    if (is_direct(path) && is_device(where, wanted)) note(found, inode, path.ends_with(kDeleted));
  }
}

void read_descriptors(pid_t pid, dev_t wanted, std::map<std::uint64_t, bool>& found) {
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator(proc_path(pid, "/fd"), gone)) {
    std::error_code failed;
    const std::string path = std::filesystem::read_symlink(item.path(), failed).string();
    struct stat facts {};
    if (!is_direct(path) || ::stat(item.path().c_str(), &facts) != 0) continue;
    if (facts.st_dev == wanted && S_ISREG(facts.st_mode)) note(found, facts.st_ino, path.ends_with(kDeleted));
  }
}

}  // namespace

std::map<std::uint64_t, bool> shared_files_of(pid_t pid) {
  std::map<std::uint64_t, bool> found;
  const dev_t wanted = device();
  if (wanted == 0) return found;
  read_maps(pid, wanted, found);
  read_descriptors(pid, wanted, found);
  return found;
}

std::map<std::uint64_t, std::vector<std::string>> names_of(const std::set<std::uint64_t>& inodes) {
  std::map<std::uint64_t, std::vector<std::string>> names;
  if (inodes.empty()) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(kSharedFolder), &::closedir);
  if (!folder) return names;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (inodes.contains(entry->d_ino) && entry->d_type == DT_REG)
      names[entry->d_ino].emplace_back(entry->d_name);
  }
  return names;
}

std::map<std::uint64_t, pid_t> holders_of(const std::set<std::uint64_t>& inodes, const std::set<pid_t>& but) {
  std::map<std::uint64_t, pid_t> holders;
  if (inodes.empty()) return holders;
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = item.path().filename().string();
    pid_t pid = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (read.ec != std::errc{} || read.ptr != name.data() + name.size() || but.contains(pid)) continue;
    for (const auto& [inode, lost] : shared_files_of(pid)) {
      if (inodes.contains(inode)) holders.emplace(inode, pid);
    }
  }
  return holders;
}

}  // namespace ckpt::agent::host
