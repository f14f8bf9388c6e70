// SPDX-License-Identifier: Apache-2.0
// The file that lies behind memory of the program, so that executors can map it, too.
#pragma once

#include <cstdint>

namespace cudasim {

// A descriptor (close-on-exec, the caller's) of the file that is mapped shared from its beginning at
// `address`, `bytes` bytes of it at least, if the program has it open; -1: there is none. Any thread.
int file_behind(std::uint64_t address, std::uint64_t bytes);

}  // namespace cudasim
