// SPDX-License-Identifier: Apache-2.0
// File descriptors of a library inside a program, with numbers above those that programs use. A program may
// close its standard input to open another file, or copy a descriptor to a number of its choice. All
// functions are thread-safe.
#pragma once

#include "libckpt/base/fd.h"

namespace ckpt {

// Copies the descriptor beyond the program's numbers. If no number is free there, uses any number from 3 on.
Result<UniqueFd> copy_beyond_program(int fd);
// Moves the descriptor beyond the program's numbers. Returns it unchanged if no number is free or it is not a
// valid descriptor.
[[nodiscard]] UniqueFd move_beyond_program(UniqueFd fd);

}  // namespace ckpt
