// SPDX-License-Identifier: Apache-2.0
// Adds pages to a process's pagemap that CRIU has left out of its dump (early_pages/criu_pages.c).
// Threads: any; files are read and written (offload). Errors: kCorrupt for images that are not understood, or
// pages that no mapping has; kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host_process/criu_image/memory_index.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// `process`: its id in its own PID namespace. `pages`: whole ones, ascending, none of them in the pagemap;
// their offsets are ignored. Their mappings decide which of them can be lazy, by CRIU's own rule.
Result<void> add_left_out_pages(const std::string& images, std::uint32_t process,
                                const std::vector<IndexedRange>& pages);

}  // namespace ckpt::agent::host
