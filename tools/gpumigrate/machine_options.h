// SPDX-License-Identifier: Apache-2.0
// The commands about this machine: `local` and `doctor`.
// Threads: one. Errors: the commands print errors and return the exit code.
#pragma once

#include "tools/gpumigrate/commands/command_tree.h"

namespace ckpt::cli {

void add_machine_commands(CommandTree& tree);

}  // namespace ckpt::cli
