// SPDX-License-Identifier: Apache-2.0
// The end of a program's output, for messages. Threads: any; it reads a file. Errors: none.
#pragma once

#include <string>

namespace ckpt::agent {

// Its last bytes as one printable line, quoted and marked as output (libckpt/base/private_text.h); "(none)".
std::string quoted_log_end(const std::string& path);

}  // namespace ckpt::agent
