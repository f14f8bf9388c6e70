// SPDX-License-Identifier: Apache-2.0
// Chooses the pages of a dumped tree that follow the processes while they run (agent/keeper/lazy_pages). All
// pages of private memory without a file can follow. A program that continues accesses its small pieces of
// memory at once. It would wait for each of those pages if they followed. Therefore the smallest runs of
// pages are restored before the processes run, up to a limit.
// Threads: any. The functions read and write files (use offload()). Errors: kCorrupt for an image with an
// unknown format. kIo.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/keeper/lazy_pages/plan.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The maximum number of bytes that are restored before the processes run, for all processes together.
inline constexpr std::uint64_t kMaxEagerBytes = std::uint64_t{32} << 20;

struct PageCounts {
  std::uint64_t eager = 0;  // number of bytes that are restored before the processes run
  std::uint64_t lazy = 0;   // number of bytes that follow the processes
};

// Returns the number of bytes for which a restore waits. The image has `bytes` bytes, and `lazy` of them can
// follow the processes. The smallest runs are restored before the processes run, up to the limit. The size of
// these runs is unknown before the dump, so the function uses the limit.
[[nodiscard]] constexpr std::uint64_t restored_bytes(std::uint64_t bytes, std::uint64_t lazy) {
  return std::max(bytes - std::min(bytes, lazy), std::min(bytes, kMaxEagerBytes));
}

// Changes the pagemaps of a folder of images, and writes the plan of the pages that follow
// (agent/keeper/lazy_pages/plan.h). If pages are in a memory log (memory_index.h), the function creates
// CRIU's files of pages from the log. Call the function once for a folder. If `max_eager_bytes` is kAllEager,
// no page follows.
inline constexpr std::uint64_t kAllEager = ~std::uint64_t{0};
Result<PageCounts> choose_lazy_pages(const std::string& images,
                                     std::uint64_t max_eager_bytes = kMaxEagerBytes);

// Returns the ranges that can be lazy, from a pagemap's bytes and its process's mm image. Tests call this
// function.
Result<std::vector<lazy_pages::MissingRange>> lazy_ranges(const std::string& pagemap,
                                                          const std::string& mm_image);

// Returns the command that starts gpumigrate-lazy-pages on a folder of images with a plan. Run the command
// before CRIU's restore. It exits when the server waits for CRIU.
[[nodiscard]] std::vector<std::string> lazy_pages_command(const std::string& images);
[[nodiscard]] std::string lazy_pages_pid_file(const std::string& images);

}  // namespace ckpt::agent::host
