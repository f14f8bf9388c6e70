// SPDX-License-Identifier: Apache-2.0
// Checks that root may run a program: nobody else can have written or replaced it.
// Threads: pure but for reading the file system. Errors: kRefused, naming what belongs to whom; errno.
#pragma once

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The file that `path` leads to and every folder above it belong to root or to this process's user. Neither
// group nor others may write to them; into a folder with the sticky bit they may, since they cannot replace
// what is in it.
Result<void> check_trusted_program(const std::string& path);

}  // namespace ckpt::agent::host
