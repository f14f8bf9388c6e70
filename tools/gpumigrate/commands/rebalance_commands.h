// SPDX-License-Identifier: Apache-2.0
// `gpumigrate rebalance` plans moves and carries them out. Threads: one. Errors: the commands print them and
// return the exit code.
#pragma once

#include "tools/gpumigrate/commands/command_tree.h"

namespace ckpt::cli {

void add_rebalance_commands(CommandTree& tree);

}  // namespace ckpt::cli
