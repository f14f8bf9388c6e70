// SPDX-License-Identifier: Apache-2.0
// Changes what is behind addresses of this process while its threads may go on reading and writing there. The
// content stays, and no write is lost: writers wait the few milliseconds, by userfaultfd. Where the kernel
// has none, a write during the change may get lost. Results: false when the kernel refuses; then nothing has
// changed.
#pragma once

#include <cstdint>

namespace cudasim {

// From a shared mapping to memory of the process's own.
bool make_private(void* address, std::uint64_t bytes);
// To a shared mapping of `fd`, which is written first.
bool make_shared(void* address, std::uint64_t bytes, int fd);

}  // namespace cudasim
