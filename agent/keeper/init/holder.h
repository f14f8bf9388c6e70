// SPDX-License-Identifier: Apache-2.0
// A PID namespace for a process that CRIU restores into it. Its first process does nothing but be there
// (`gpumigrate-init --hold`). So the restored process finds its number free, whatever the node has.
// Threads: one that forks. Ownership: the namespace ends, with all in it, when `alive` is closed, so also
// when its owner dies. Errors: kNotSupported without root, kIo.
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

// `init`: path of gpumigrate-init.
Result<NamespaceHolder> hold_pid_namespace(const std::string& init);

}  // namespace ckpt::keeper
