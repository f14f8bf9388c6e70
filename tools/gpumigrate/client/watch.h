// SPDX-License-Identifier: Apache-2.0
// Follows a migration to its end: shows progress, handles Ctrl-C, and survives a restart of the coordinator.
// Threads: one. Errors: kTimedOut if contact was lost for longer than the context's patience, or if the user
// interrupted while it was lost. The error names the command that queries again.
#pragma once

#include <string>

#include "tools/gpumigrate/client/wait.h"

namespace ckpt::cli {

enum class OnInterrupt {
  kAbort,  // the first interrupt aborts the migration; the second ends only the command
  kLeave,
};

// Returns the migration once it has ended. Returns kAborted if the user or the wait's limit ended the
// command; the migration continues.
Result<Json> follow_migration(Context& context, const std::string& id, OnInterrupt on_interrupt,
                              const Wait& wait);

// Prints the outcome and returns its exit code.
int print_outcome(Context& context, const Json& migration);

}  // namespace ckpt::cli
