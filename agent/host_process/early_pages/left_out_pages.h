// SPDX-License-Identifier: Apache-2.0
// The library that makes CRIU leave pages out of a dump (criu_pages.c).
// Threads: any. The function reads the file system (use offload()). Errors: none.
#pragma once

#include <string>

namespace ckpt::agent::host {

// Returns the library's path, next to this program (../lib). The path is empty, with a line in the log, in
// two cases. The library is missing, or another user could have written the library, which runs within CRIU
// as root. CRIU then dumps all pages.
std::string left_out_pages_library();

}  // namespace ckpt::agent::host
