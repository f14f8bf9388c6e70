// SPDX-License-Identifier: Apache-2.0
// The exit of an example after a failure: one line on stderr.
// Threads: any.
#pragma once

#include <string>

namespace ckpt::examples {

// Prints "PROGRAM: message" and exits with `code`.
[[noreturn]] void fail(const std::string& message, int code = 1);

}  // namespace ckpt::examples
