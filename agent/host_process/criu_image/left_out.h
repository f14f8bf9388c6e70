// SPDX-License-Identifier: Apache-2.0
// Adds the pages that CRIU has left out of its dump to a process's pagemap (early_pages/criu_pages.c).
// Threads: any. The function reads and writes files (use offload()). Errors: kCorrupt for images with an
// unknown format, and for pages outside all mappings. kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host_process/criu_image/memory_index.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Adds `pages` to the pagemap of `process`, which is an id in the process's own PID namespace. The pages are
// whole and ascending, and the pagemap contains none of them. Their offsets are ignored. CRIU's own rule
// decides by the mappings which pages can be lazy.
Result<void> add_left_out_pages(const std::string& images, std::uint32_t process,
                                const std::vector<IndexedRange>& pages);

}  // namespace ckpt::agent::host
