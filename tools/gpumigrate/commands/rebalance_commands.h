// SPDX-License-Identifier: Apache-2.0
// `gpumigrate rebalance` plans moves and executes them.
// Threads: one. Errors: the commands print errors and return the exit code.
#pragma once

#include "tools/gpumigrate/commands/command_tree.h"

namespace ckpt::cli {

void add_rebalance_commands(CommandTree& tree);

}  // namespace ckpt::cli
