// SPDX-License-Identifier: Apache-2.0
// A PID namespace for a process that CRIU restores into it. The namespace's first process does nothing
// (`gpumigrate-init --hold`). Therefore the restored process finds its number free, independent of the node's
// processes.
// Threads: one that forks. Ownership: the kernel kills all processes of the namespace when `alive` is closed,
// also when its owner exits. Errors: kNotSupported without root, kIo.
#pragma once

#include <sys/types.h>

#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

struct NamespaceHolder {
  UniqueFd alive;
  UniqueFd pid_namespace;
};

// Starts the first process of the namespace. `init` is the path of gpumigrate-init.
Result<NamespaceHolder> hold_pid_namespace(const std::string& init);

}  // namespace ckpt::keeper
