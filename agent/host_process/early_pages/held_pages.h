// SPDX-License-Identifier: Apache-2.0
// Compares pages of a stopped process with their copies in the memory log. The kernel's scan results already
// prove that the log's copies are current (memory_watch.h). This comparison checks that proof for a few pages
// of each move.
// Threads: any. The functions read the process (use offload()). Errors: kCorrupt names the first page that
// differs. Errors of reading are returned unchanged.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <random>
#include <vector>

#include "agent/host_process/criu_image/memory_index.h"
#include "agent/host_process/memory_log.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Compares all pages of `held`, the ranges that the log holds.
Result<void> compare_pages(pid_t pid, const std::vector<IndexedRange>& held, const MemoryLog& log);
// Compares at most `limit` pages of `held`, drawn by `random`. 256 pages take less than a millisecond.
Result<void> compare_some_pages(pid_t pid, const std::vector<IndexedRange>& held, const MemoryLog& log,
                                std::uint64_t limit, std::mt19937_64& random);

}  // namespace ckpt::agent::host
