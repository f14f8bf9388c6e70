// SPDX-License-Identifier: Apache-2.0
// Prepares the image of a process that is not the first one of its PID namespace. The process can then be
// restored into a fresh namespace, where its PID is free. A process in its own namespace is dumped with that
// namespace as "external". The image of a process that shares this agent's namespace is changed here. It
// names the namespace of the process that restores it, and the session and group of a shell. The changed
// files (inventory, pstree, pidns) are those of CRIU 4: a magic, then protobuf records (criu_images.proto).
// Unknown fields of a record are preserved.
// Threads: any. Errors: kCorrupt for a malformed image. kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The name of the namespace in CRIU's command and in the image. The restoring side passes the name as
// `--inherit-fd fd[N]:LABEL`.
inline constexpr const char* kPidNamespaceLabel = "gpumigrate-pid-namespace";

// Returns the inode of the PID namespace of process `pid`. 0 means the calling process.
Result<std::uint64_t> pid_namespace_of(pid_t pid);

// Returns the arguments for CRIU's dump of `root`.
Result<std::vector<std::string>> namespace_dump_options(pid_t root);
// Changes the image of a `root` that shares this agent's namespace. The changed image requests a separate
// namespace. `root` enters that namespace as leader of a session and of a process group. The function does
// nothing for any other `root`.
Result<void> detach_from_namespace(const std::string& images, pid_t root);

// Returns the changed bytes of pstree.img, or of inventory.img. The second function also returns the
// namespace id that a pidns image must describe. Tests call these functions.
Result<std::string> with_own_session(const std::string& pstree);
struct DetachedInventory {
  std::string bytes;
  std::uint32_t pid_namespace_id = 0;
};
Result<DetachedInventory> with_other_namespace(const std::string& inventory);

}  // namespace ckpt::agent::host
