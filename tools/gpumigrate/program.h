// SPDX-License-Identifier: Apache-2.0
// The command line of gpumigrate: parses it and runs one command. Threads: one.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ckpt::cli {

// GPUMIGRATE_HOME, or ~/.local/share/gpumigrate; absolute.
std::string default_home();

// Runs `arguments` (without the program's name) and returns the exit code. `terminal`: whether `err` is one.
int run_program(const std::vector<std::string>& arguments, const std::string& home, std::ostream& out,
                std::ostream& err, bool terminal);

}  // namespace ckpt::cli
