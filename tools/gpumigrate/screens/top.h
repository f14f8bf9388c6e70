// SPDX-License-Identifier: Apache-2.0
// `gpumigrate top` shows the cluster on a whole terminal, once a second, until q or Ctrl-C. In a pipe or a
// file it prints the cluster once.
// Threads: one. Errors: the command reports errors and returns the exit code. On a terminal it retries while
// the coordinator is unreachable.
#pragma once

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

int show_top(Context& context);

}  // namespace ckpt::cli
