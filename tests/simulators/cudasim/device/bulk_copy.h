// SPDX-License-Identifier: Apache-2.0
// Copies of a device's copy engine. A real engine moves memory past the processors' caches. A copy on a core
// that used the caches would read each line before overwriting it. It would also evict the data of other
// programs from the caches.
#pragma once

#include <cstdint>

namespace cudasim {

// Copies `bytes` between addresses of this process, as std::memmove does: the ranges may overlap and may have
// any alignment. Copies that are too long for a fast reuse by the processor bypass the caches. The result is
// visible to other threads that learn of the end by an atomic, as with memmove. May fault: run this guarded
// (fault.h).
void bulk_copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept;

}  // namespace cudasim
