// SPDX-License-Identifier: Apache-2.0
// The end of a program's output, for messages.
// Threads: any. The function reads a file. Errors: none.
#pragma once

#include <string>

namespace ckpt::agent {

// Returns the last bytes of the output as one printable line, quoted and marked as output
// (libckpt/base/private_text.h). Returns "(none)" if there is no output.
std::string quoted_log_end(const std::string& path);

}  // namespace ckpt::agent
