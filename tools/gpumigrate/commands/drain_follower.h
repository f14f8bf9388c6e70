// SPDX-License-Identifier: Apache-2.0
// Follows a drain to its end. A terminal has a screen with a bar, redrawn in place; a pipe gets a line whenever
// a job's state changes. Ctrl-C leaves the drain running.
// Threads: one. Errors: kAborted: left alone at the user's wish or at the wait's limit. kTimedOut: contact lost
// for longer than the context's patience.
#pragma once

#include <string>

#include "tools/gpumigrate/client/wait.h"

namespace ckpt::cli {

std::string drain_path(const std::string& id);  // of the API

// The drain once it is over.
Result<Json> follow_to_its_end(Context& context, const std::string& id, const Wait& wait);

}  // namespace ckpt::cli
