// SPDX-License-Identifier: Apache-2.0
// Checks that root may run a program: no other user can have written or replaced it.
// Threads: any. The function only reads the file system. Errors: kRefused names the file and its owner.
// errno.
#pragma once

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Checks the file that `path` leads to and every folder above it. They must belong to root or to this
// process's user, and neither group nor others may write to them. A folder with the sticky bit may be
// writable, because other users cannot replace its entries.
Result<void> check_trusted_program(const std::string& path);

}  // namespace ckpt::agent::host
