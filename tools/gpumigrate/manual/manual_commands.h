// SPDX-License-Identifier: Apache-2.0
// The commands that print the program's own definition.
// Threads: one. Errors: the commands print errors and return the exit code.
#pragma once

#include "tools/gpumigrate/commands/command_tree.h"

namespace ckpt::cli {

void add_manual_commands(CommandTree& tree);  // adds help and completion

}  // namespace ckpt::cli
