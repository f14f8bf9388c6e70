// SPDX-License-Identifier: Apache-2.0
// The library that makes CRIU leave pages out of a dump (criu_pages.c).
// Threads: any; it reads the file system (offload()). Errors: none.
#pragma once

#include <string>

namespace ckpt::agent::host {

// Returns the library's path, beside this program (../lib). Empty, with a line in the log: the library is
// missing, or another user could have written it while CRIU runs as root. CRIU then dumps all pages.
std::string left_out_pages_library();

}  // namespace ckpt::agent::host
