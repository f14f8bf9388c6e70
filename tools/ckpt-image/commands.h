// SPDX-License-Identifier: Apache-2.0
// The commands of ckpt-image (README.md). They only read checkpoint stores.
// Threads: one.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace ckpt::image_tool {

enum ExitCode : int { kDone = 0, kDamaged = 1, kRefused = 5, kUsage = 64 };

// Runs the command. `arguments` does not include the program's name.
int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace ckpt::image_tool
