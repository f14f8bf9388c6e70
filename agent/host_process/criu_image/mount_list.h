// SPDX-License-Identifier: Apache-2.0
// The mounts of a job's own mount namespace in CRIU's image (docs/adr/0056). The image lists the mounts that
// the job has alone, and each mount of the source's node. CRIU takes the latter from the same path of the
// target. The target changes this list to its own mounts. A mount whose path the target lacks is left out. A
// mount that only the target has is added, so that the restored job sees the whole tree of its node. An image
// with other mounts is refused.
// Threads: any. Errors: kCorrupt for a malformed image. kIo.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct NodeMount {
  std::string path;
  std::uint32_t flags = 0;     // mount flags such as MS_RDONLY
  std::uint32_t group = 0;     // Mount::group (mount_table.h)
  bool is_unbindable = false;  // true if the mount cannot be bound in any other namespace
};

// Returns this node's mounts, parents before children. Mounts that no path reaches are left out.
Result<std::vector<NodeMount>> mounts_of_node();

// Changes the mount list in the folder `images`. Call this function before the restore from that folder.
// `own` lists the folders of the mounts that the job has alone.
Result<void> use_mounts_of_node(const std::string& images, const std::vector<std::string>& own);

// Changes the image so that the files with path `from` are opened at the path `to`, regardless of their
// length. The program's log is such a file: within a mount namespace of the job's own, CRIU must open it
// itself.
Result<void> redirect_file(const std::string& images, const std::string& from, const std::string& to);

// Returns the changed bytes of a mount list. `exists` returns whether this node has a path. Tests call this
// function.
Result<std::string> with_mounts(const std::string& list, const std::vector<NodeMount>& node,
                                const std::vector<std::string>& own,
                                const std::function<bool(const std::string&)>& exists);

}  // namespace ckpt::agent::host
