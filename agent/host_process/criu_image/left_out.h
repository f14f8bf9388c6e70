// SPDX-License-Identifier: Apache-2.0
// Pages of a process that CRIU has left out of its dump (early_pages/criu_pages.c): its pagemap gets them.
// Threads: any; files are read and written (offload). Errors: kCorrupt for images that are not understood, or pages that
// no mapping has; kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host_process/criu_image/memory_index.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// `process`: its id in its own PID namespace. `pages`: whole ones, ascending, none of them in the pagemap; their
// offsets count for nothing. They can be lazy where CRIU would have said so, by their mappings.
Result<void> add_left_out_pages(const std::string& images, std::uint32_t process,
                                const std::vector<IndexedRange>& pages);

}  // namespace ckpt::agent::host
