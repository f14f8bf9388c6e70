// SPDX-License-Identifier: Apache-2.0
// Chooses the pages of a dumped tree that follow it while it runs (agent/keeper/lazy_pages). All pages of
// private memory without a file can. A program that goes on touches its small pieces of memory at once and
// would wait for each page. So the smallest runs of pages come with the process instead, up to a limit.
// Threads: any; it reads and writes files (offload). Errors: kCorrupt for an image that is not understood;
// kIo.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/keeper/lazy_pages/plan.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The limit of the bytes that come with all processes together.
inline constexpr std::uint64_t kMaxEagerBytes = std::uint64_t{32} << 20;

struct PageCounts {
  std::uint64_t eager = 0;  // bytes that come with the processes
  std::uint64_t lazy = 0;   // bytes that follow them
};

// The bytes for which a restore waits, of an image of `bytes`, `lazy` of which can follow the processes. The
// smallest of their runs come with the processes, up to the limit. Their size is unknown before the dump, so
// the limit stands for it.
[[nodiscard]] constexpr std::uint64_t restored_bytes(std::uint64_t bytes, std::uint64_t lazy) {
  return std::max(bytes - std::min(bytes, lazy), std::min(bytes, kMaxEagerBytes));
}

// Changes the pagemaps of a folder of images, and writes the plan of what follows
// (agent/keeper/lazy_pages/plan.h). Where pages are in a memory log (memory_index.h), CRIU's files of pages
// are made of it. Called once for a folder. With `most_eager` = kAllEager nothing follows.
inline constexpr std::uint64_t kAllEager = ~std::uint64_t{0};
Result<PageCounts> choose_lazy_pages(const std::string& images, std::uint64_t most_eager = kMaxEagerBytes);

// Returns the ranges that can be lazy, by a pagemap's bytes and its process's mm image. Used by tests.
Result<std::vector<lazy_pages::MissingRange>> lazy_ranges(const std::string& pagemap,
                                                          const std::string& mm_image);

// Returns the command that starts gpumigrate-lazy-pages on a folder of images with such a plan, before CRIU's
// restore. The command ends once the server waits for CRIU.
[[nodiscard]] std::vector<std::string> lazy_pages_command(const std::string& images);
[[nodiscard]] std::string lazy_pages_pid_file(const std::string& images);

}  // namespace ckpt::agent::host
