// SPDX-License-Identifier: Apache-2.0
// Following a migration to its end: progress, Ctrl-C, a coordinator that is away for a while.
// Threads: one. Errors: kTimedOut: contact lost for longer than the context's patience, or interrupted while
// it is lost; names the command that asks again.
#pragma once

#include <string>

#include "tools/gpumigrate/client/wait.h"

namespace ckpt::cli {

enum class OnInterrupt {
  kAbort,  // the first aborts the migration, the second leaves it alone and ends the command
  kLeave,
};

// The migration once it is over. kAborted: left alone at the user's wish or at the wait's limit; it goes on.
Result<Json> follow_migration(Context& context, const std::string& id, OnInterrupt on_interrupt,
                              const Wait& wait);

// Prints the outcome and returns its exit code.
int print_outcome(Context& context, const Json& migration);

}  // namespace ckpt::cli
