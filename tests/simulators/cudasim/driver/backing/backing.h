// SPDX-License-Identifier: Apache-2.0
// Replaces the memory behind addresses of this process while its threads may continue to read and write the
// addresses. The content does not change and no write is lost: writers wait a few milliseconds, through
// userfaultfd. If the kernel lacks userfaultfd, a write during the change may be lost. Results: false when
// the kernel refuses; then nothing has changed.
#pragma once

#include <cstdint>

namespace cudasim {

// Changes a shared mapping to private memory of the process.
bool make_private(void* address, std::uint64_t bytes);
// Changes the memory to a shared mapping of `fd`, after writing the content to the file.
bool make_shared(void* address, std::uint64_t bytes, int fd);

}  // namespace cudasim
