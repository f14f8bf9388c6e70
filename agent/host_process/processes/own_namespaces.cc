// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/own_namespaces.h"

#include <sys/statfs.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxMountsText = 16u << 20;
constexpr std::size_t kMaxDescriptorText = 1u << 16;

std::string seen_from_here(pid_t root, const std::string& folder) {
  return proc_path(root, "/root" + folder);
}

}  // namespace

std::vector<std::string> OwnNamespaces::folders() const {
  std::vector<std::string> folders;
  if (present) folders.emplace_back("/dev/shm");
  if (present && private_tmp) folders.emplace_back("/tmp");
  return folders;
}

bool OwnNamespaces::contains(const std::string& path) const {
  const std::vector<std::string> own = folders();
  return std::any_of(own.begin(), own.end(), [&path](const std::string& folder) {
    return path == folder || path.starts_with(folder + "/");
  });
}

std::uint64_t own_memory_bytes(pid_t root, const OwnNamespaces& own) {
  std::uint64_t bytes = 0;
  for (const std::string& folder : own.folders()) {
    struct statfs facts {};
    if (::statfs(seen_from_here(root, folder).c_str(), &facts) != 0 || facts.f_bfree > facts.f_blocks)
      continue;
    bytes += static_cast<std::uint64_t>(facts.f_blocks - facts.f_bfree) *
             static_cast<std::uint64_t>(facts.f_bsize);
  }
  return bytes;
}

std::set<int> mounts_of(pid_t pid) {
  std::set<int> mounts;
  const Result<std::string> text = read_file(proc_path(pid, "/mountinfo"), kMaxMountsText);
  if (!text.has_value()) return mounts;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) mounts.insert(std::atoi(line.c_str()));
  return mounts;
}

int mount_of_descriptor(pid_t pid, int number) {
  constexpr std::string_view kField = "mnt_id:";
  const Result<std::string> text =
      read_file(proc_path(pid, "/fdinfo/") + std::to_string(number), kMaxDescriptorText);
  const std::size_t at = text.has_value() ? text->find(kField) : std::string::npos;
  return at == std::string::npos ? -1 : std::atoi(text->c_str() + at + kField.size());
}

}  // namespace ckpt::agent::host
