// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/file_identity.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <sstream>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxMountsBytes = 16u << 20;
constexpr std::size_t kMaxHandleBytes = 128;  // value of MAX_HANDLE_SZ
constexpr std::int64_t kNanosOfSecond = 1'000'000'000;
constexpr std::string_view kFuse = "fuse.";

// The file systems whose inode numbers are assigned by the server or the cluster.
constexpr std::array<std::string_view, 14> kNetworkTypes = {
    "nfs",    "nfs4", "cifs",  "smb3", "ceph",     "lustre", "gpfs",
    "beegfs", "afs",  "ocfs2", "gfs2", "orangefs", "9p",     "virtiofs"};

bool is_network(const std::string& type) {
  return type.starts_with(kFuse) ||
         std::find(kNetworkTypes.begin(), kNetworkTypes.end(), type) != kNetworkTypes.end();
}

// Checks whether the mount is of a network file system in which each client assigns file handles of its own.
// Such handles cannot be compared between nodes.
bool has_handles_of_its_client(const std::string& network) {
  return network.starts_with(kFuse) || network.starts_with("virtiofs") || network.starts_with("9p");
}

std::int64_t nanos_of(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * kNanosOfSecond + time.tv_nsec;
}

std::string handle_digits(std::span<const unsigned char> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::uint64_t mount_of(const std::string& path) {
  struct statx facts {};
  const bool known =
      ::statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &facts) == 0 && (facts.stx_mask & STATX_MNT_ID) != 0;
  return known ? facts.stx_mnt_id : 0;
}

std::string handle_of(const std::string& path) {
  alignas(file_handle) std::array<unsigned char, sizeof(file_handle) + kMaxHandleBytes> space{};
  auto* const handle = reinterpret_cast<file_handle*>(space.data());
  handle->handle_bytes = kMaxHandleBytes;
  int mount = 0;
  if (::name_to_handle_at(AT_FDCWD, path.c_str(), handle, &mount, AT_SYMLINK_FOLLOW) != 0 ||
      handle->handle_bytes > kMaxHandleBytes)
    return {};
  return std::to_string(handle->handle_type) + ":" +
         handle_digits({space.data() + sizeof(file_handle), handle->handle_bytes});
}

}  // namespace

bool is_unchanged(const FileIdentity& before, const FileIdentity& now) {
  return before.written_ns == now.written_ns && before.changed_ns == now.changed_ns;
}

Sameness compare(const FileIdentity& there, const FileIdentity& here, bool one_kernel) {
  if (there.inode == 0 || there.inode != here.inode) return Sameness::kOther;
  if (one_kernel) return there.device == here.device ? Sameness::kSame : Sameness::kOther;
  if (there.network.empty() || there.network != here.network || there.handle != here.handle)
    return Sameness::kOther;
  return !there.handle.empty() || is_unchanged(there, here) ? Sameness::kSame : Sameness::kPerhaps;
}

std::string running_kernel() {
  const Result<std::string> id = read_file("/proc/sys/kernel/random/boot_id", 64);
  return id.has_value() ? id->substr(0, id->find('\n')) : "";
}

bool is_mount(const std::string& path) {
  struct statx facts {};
  return ::statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &facts) == 0 &&
         (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool is_kernels_own(const std::string& path) {
  struct statfs facts {};
  if (::statfs(path.c_str(), &facts) != 0) return false;
  static constexpr std::array<std::uint32_t, 7> kOwn = {
      PROC_SUPER_MAGIC, SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
      DEBUGFS_MAGIC,    TRACEFS_MAGIC, SECURITYFS_MAGIC};
  return std::find(kOwn.begin(), kOwn.end(), static_cast<std::uint32_t>(facts.f_type)) != kOwn.end();
}

MountLine parse_mount(const std::string& line) {
  MountLine parsed;
  std::istringstream words(line);
  words >> parsed.mount;
  const std::size_t end = line.find(" - ");
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 3));
  std::string type, source;
  rest >> type >> source;
  if (is_network(type)) parsed.network = type + " " + source;
  return parsed;
}

void FileSystems::read_mounts() {
  is_read_ = true;
  const Result<std::string> mounts = read_file("/proc/self/mountinfo", kMaxMountsBytes);
  if (!mounts.has_value()) return;
  std::istringstream lines(*mounts);
  for (std::string line; std::getline(lines, line);) {
    if (MountLine parsed = parse_mount(line); !parsed.network.empty())
      networks_[parsed.mount] = std::move(parsed.network);
  }
}

std::string FileSystems::network_of(std::uint64_t mount) {
  if (!is_read_) read_mounts();
  const auto at = networks_.find(mount);
  return at == networks_.end() ? std::string() : at->second;
}

FileIdentity FileSystems::identity_of(const std::string& path, const struct stat& facts) {
  FileIdentity identity;
  identity.device = facts.st_dev;
  identity.inode = facts.st_ino;
  identity.written_ns = nanos_of(facts.st_mtim);
  identity.changed_ns = nanos_of(facts.st_ctim);
  if (!is_read_) read_mounts();
  if (networks_.empty()) return identity;
  identity.network = network_of(mount_of(path));
  if (!identity.network.empty() && !has_handles_of_its_client(identity.network))
    identity.handle = handle_of(path);
  return identity;
}

}  // namespace ckpt::agent::host
