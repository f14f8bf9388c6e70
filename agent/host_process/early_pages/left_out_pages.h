// SPDX-License-Identifier: Apache-2.0
// The library that makes CRIU leave pages out of a dump (criu_pages.c).
// Threads: any. The function reads the file system (use offload()). Errors: none.
#pragma once

#include <string>

namespace ckpt::agent::host {

// Returns the library's path, next to this program (../lib). Returns an empty path and logs a line in two
// cases: the library is missing, or another user could have written it. CRIU then dumps all pages. The check
// is needed because the library runs within CRIU as root.
std::string left_out_pages_library();

}  // namespace ckpt::agent::host
