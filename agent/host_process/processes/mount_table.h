// SPDX-License-Identifier: Apache-2.0
// The kernel's table of the mounts of a mount namespace (/proc/PID/mountinfo).
// Threads: any. Errors: none. The table of a process that has ended is empty. The functions read the table
// only, because a look at a network mount whose server is gone does not return.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::agent::host {

// The limit of mounts that are read. The table of a node with more is cut.
inline constexpr std::size_t kMaxMounts = 8192;

struct Mount {
  int id = 0;
  int parent = 0;
  std::string device;       // "8:1", which is the same for all mounts of one file system
  std::string root;         // the folder of the file system that is mounted
  std::string path;         // the place in the namespace
  std::uint32_t flags = 0;  // MS_RDONLY and the like
  // The number of the group whose mounts and unmounts below this mount reach others (mount_namespaces(7)). 0
  // means that none do.
  std::uint32_t group = 0;
  bool is_unbindable = false;
  bool is_of_one_user = false;  // a FUSE mount of a user that even root may not look at
  std::string type;
};

// Returns the mounts of the process with the folder `process`, such as "/proc/self".
[[nodiscard]] std::vector<Mount> mounts_seen_by(const std::string& process);
// Returns the mounts in the text of a mountinfo. Lines that are malformed are left out.
[[nodiscard]] std::vector<Mount> parse_mounts(const std::string& text);
// Removes the mounts that no path reaches, because a later mount covers them.
void remove_covered(std::vector<Mount>& mounts);

// Checks whether `path` is `folder` or lies in it. Both are absolute, and neither ends with a slash.
[[nodiscard]] bool lies_in(const std::string& path, const std::string& folder);

}  // namespace ckpt::agent::host
