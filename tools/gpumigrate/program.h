// SPDX-License-Identifier: Apache-2.0
// The command line of gpumigrate: parses it and runs one command. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// Returns GPUMIGRATE_HOME, or ~/.local/share/gpumigrate, as an absolute path.
std::string default_home();

// Runs `arguments` (without the program's name) and returns the exit code.
int run_program(const std::vector<std::string>& arguments, Context& context);

}  // namespace ckpt::cli
