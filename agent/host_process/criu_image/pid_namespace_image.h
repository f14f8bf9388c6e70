// SPDX-License-Identifier: Apache-2.0
// Prepares the image of a process that is not the first one of its PID namespace. It can then be restored
// into a fresh namespace, where its PID is free. A process in a namespace of its own is dumped with that
// namespace as "external". The image of a process that shares this agent's namespace is changed here. It
// names the namespace of the process that restores it, and the session and group of a shell. The changed
// files (inventory, pstree, pidns) are those of CRIU 4: protobuf records (criu_images.proto) behind a magic.
// Unknown fields of a record are kept. Threads: any. Errors: kCorrupt for a malformed image; kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The name of the namespace in CRIU's command and in the image; the restoring side gives it as
// `--inherit-fd fd[N]:LABEL`.
inline constexpr const char* kPidNamespaceLabel = "gpumigrate-pid-namespace";

// Returns the inode of the PID namespace of process `pid` (0: this process).
Result<std::uint64_t> pid_namespace_of(pid_t pid);

// Returns the arguments for CRIU's dump of `root`.
Result<std::vector<std::string>> namespace_dump_options(pid_t root);
// Changes the image of a `root` that shares this agent's namespace. The image then asks for a namespace of
// its own, which `root` enters as leader of a session and of a process group. Does nothing for any other
// `root`.
Result<void> detach_from_namespace(const std::string& images, pid_t root);

// Return the changed bytes of pstree.img and inventory.img. The second also returns the namespace id that a
// pidns image must describe. Used by tests.
Result<std::string> with_own_session(const std::string& pstree);
struct DetachedInventory {
  std::string bytes;
  std::uint32_t pid_namespace_id = 0;
};
Result<DetachedInventory> with_other_namespace(const std::string& inventory);

}  // namespace ckpt::agent::host
