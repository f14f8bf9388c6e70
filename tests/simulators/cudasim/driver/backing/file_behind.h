// SPDX-License-Identifier: Apache-2.0
// The file that backs memory of the program; executors map this file, too.
#pragma once

#include <cstdint>

namespace cudasim {

// Returns a close-on-exec descriptor of the file that backs `bytes` bytes at `address`. The caller owns the
// descriptor. The file must be mapped shared from its beginning, and the program must have it open. Returns
// -1 if there is no such file.
// Threads: any.
int file_behind(std::uint64_t address, std::uint64_t bytes);

}  // namespace cudasim
