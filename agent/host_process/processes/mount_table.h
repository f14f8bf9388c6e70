// SPDX-License-Identifier: Apache-2.0
// The kernel's table of the mounts of a mount namespace (/proc/PID/mountinfo).
// Threads: any. Errors: kIo if the table cannot be read, kRefused if it has more than kMaxMounts mounts. The
// functions read only the table, because an access to a network mount whose server is gone does not return.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The maximum number of mounts of a table.
inline constexpr std::size_t kMaxMounts = 8192;

struct Mount {
  int id = 0;
  int parent = 0;
  std::string device;  // device number, such as "8:1", which is the same for all mounts of one file system
  std::string root;    // the folder within the file system that is mounted at `path`
  std::string path;    // path of the mount in the mount namespace
  std::uint32_t flags = 0;  // flags of mount(2), such as MS_RDONLY
  // The number of the peer group of this mount. Mounts and unmounts below this mount propagate within the
  // group (mount_namespaces(7)). 0 means that nothing propagates.
  std::uint32_t group = 0;
  bool is_unbindable = false;
  bool is_of_one_user = false;  // a FUSE mount of a user that even root may not look at
  std::string type;
};

// Returns the mounts of the process whose folder under /proc is `process`, such as "/proc/self".
Result<std::vector<Mount>> mounts_seen_by(const std::string& process);
// Returns the mounts in the text of a mountinfo, up to one more than kMaxMounts. Lines that are malformed are
// left out.
[[nodiscard]] std::vector<Mount> parse_mounts(const std::string& text);
// Removes the mounts that no path reaches, because a later mount covers them.
void remove_covered(std::vector<Mount>& mounts);

// Checks whether `path` is `folder` or lies in it. Both are absolute, and neither ends with a slash.
[[nodiscard]] bool lies_in(const std::string& path, const std::string& folder);

}  // namespace ckpt::agent::host
