// SPDX-License-Identifier: Apache-2.0
// A pagemap of CRIU's image: the pages of a process, in the order in which they lie in its file of pages.
// Includes protobuf's headers, so only sources of this folder include it. Threads: any; files are read and
// written (offload).
// Errors: kCorrupt for an image that is not understood; kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "criu_images.pb.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxPagemapBytes = std::size_t{256} << 20;
inline constexpr std::uint32_t kCanBeLazy = 1u << 1;  // PE_LAZY
inline constexpr std::uint32_t kIsPresent = 1u << 2;  // PE_PRESENT

struct Pagemap {
  std::string path;
  std::uint32_t process = 0;  // its id in its own PID namespace; 0: memory that processes share
  std::uint32_t pages_file = 0;
  std::string head;  // the magic and the first record
  std::vector<criu::pagemap_entry> entries;
};

[[nodiscard]] std::uint64_t bytes_of_entry(const criu::pagemap_entry& entry);
[[nodiscard]] bool can_be_lazy(const criu::pagemap_entry& entry);
// The rule of vma_entry_can_be_lazy() in CRIU's criu/include/vma.h.
[[nodiscard]] bool can_be_lazy(const criu::vma_entry& mapping);
// True if the entry's bytes are in the file of pages.
[[nodiscard]] bool is_present(const criu::pagemap_entry& entry);

// The mappings of a process, by address and apart. Guards, which lie within mappings, are not among them.
Result<std::vector<criu::vma_entry>> parse_mappings(const std::string& mm_image);

Result<Pagemap> parse_pagemap(const std::string& text, std::uint32_t process);
// The pagemaps of processes. read_all_pagemaps() adds those of shared memory, which have no lazy pages.
Result<std::vector<Pagemap>> read_pagemaps(const std::string& images);
Result<std::vector<Pagemap>> read_all_pagemaps(const std::string& images);
// Marks all pages as lazy that can be, by their mappings. CRIU up to 4.2 marks no page of a process if one of
// its threads has its stack pointer at the start of a page: is_stack() in criu/mem.c compares offsets within
// pages. Entries are cut where a mapping ends. kCorrupt: pages without a mapping.
Result<void> mark_lazy_pages(Pagemap& pagemap, const std::vector<criu::vma_entry>& mappings);
Result<void> write_pagemap(const Pagemap& pagemap);

}  // namespace ckpt::agent::host
