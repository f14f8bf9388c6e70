// SPDX-License-Identifier: Apache-2.0
// Copies of a device's copy engine. A real one moves memory past the processors' caches. A copy that runs on
// a core and does not would read each line that it is about to overwrite. It would also push the data of
// other programs out of the caches.
#pragma once

#include <cstdint>

namespace cudasim {

// Copies `bytes` between addresses of this process, as std::memmove does: they may overlap, and may have any
// alignment. What is long enough for the processor not to want it next is written past the caches; it is
// visible to other threads that learn of the end by an atomic, as with memmove. May fault: run it guarded
// (fault.h).
void bulk_copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept;

}  // namespace cudasim
