// SPDX-License-Identifier: Apache-2.0
// Follows a drain to its end. On a terminal it shows a screen with a bar that is redrawn in place. In a pipe
// it prints a line whenever a job's state changes. Ctrl-C leaves the drain running.
// Threads: one. Errors: kAborted if the user or the wait's limit ended the command; the drain continues.
// kTimedOut if contact was lost for longer than the context's patience.
#pragma once

#include <string>

#include "tools/gpumigrate/client/wait.h"

namespace ckpt::cli {

std::string drain_path(const std::string& id);  // returns the path of the drain in the API

// Follows the drain to its end. Returns its final state.
Result<Json> follow_to_its_end(Context& context, const std::string& id, const Wait& wait);

}  // namespace ckpt::cli
