// SPDX-License-Identifier: Apache-2.0
// File descriptors of a library inside a program, with numbers above those that programs use. A program may
// close its standard input to open another, or copy a descriptor to a number of its choice.
// All functions are thread-safe.
#pragma once

#include "libckpt/base/fd.h"

namespace ckpt {

// Where no number is free there, any from 3 on.
Result<UniqueFd> copy_beyond_program(int fd);
// The same descriptor there; where none is free, or it is none, as it was.
[[nodiscard]] UniqueFd move_beyond_program(UniqueFd fd);

}  // namespace ckpt
