// SPDX-License-Identifier: Apache-2.0
// A pagemap of CRIU's image. It lists the pages of a process in the order of its file of pages. This header
// includes protobuf's headers, so only sources of this folder include it.
// Threads: any. The functions read and write files (use offload()). Errors: kCorrupt for an image with an
// unknown format. kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "criu_images.pb.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxPagemapBytes = std::size_t{256} << 20;
inline constexpr std::uint32_t kCanBeLazy = 1u << 1;  // the flag PE_LAZY
inline constexpr std::uint32_t kIsPresent = 1u << 2;  // the flag PE_PRESENT

struct Pagemap {
  std::string path;
  std::uint32_t process = 0;  // id of the process in its own PID namespace; 0 for memory that processes share
  std::uint32_t pages_file = 0;
  std::string head;  // the file's magic and first record
  std::vector<criu::pagemap_entry> entries;
};

[[nodiscard]] std::uint64_t bytes_of_entry(const criu::pagemap_entry& entry);
[[nodiscard]] bool can_be_lazy(const criu::pagemap_entry& entry);
// Checks whether the pages of a mapping can be lazy. The rule is that of vma_entry_can_be_lazy() in CRIU's
// criu/include/vma.h.
[[nodiscard]] bool can_be_lazy(const criu::vma_entry& mapping);
// Checks whether the entry's bytes are in the file of pages.
[[nodiscard]] bool is_present(const criu::pagemap_entry& entry);

// Returns the mappings of a process, by address and without overlap. The result does not contain guards,
// which lie within mappings.
Result<std::vector<criu::vma_entry>> parse_mappings(const std::string& mm_image);

Result<Pagemap> parse_pagemap(const std::string& text, std::uint32_t process);
// Returns the pagemaps of processes. read_all_pagemaps() adds the pagemaps of shared memory, which have no
// lazy pages.
Result<std::vector<Pagemap>> read_pagemaps(const std::string& images);
Result<std::vector<Pagemap>> read_all_pagemaps(const std::string& images);
// Marks all pages as lazy that can be lazy according to their mappings. CRIU up to 4.2 marks no page of a
// process if one of its threads has its stack pointer at the start of a page. The reason is that is_stack()
// in criu/mem.c compares offsets within pages. The function splits entries at the end of a mapping. kCorrupt
// reports pages without a mapping.
Result<void> mark_lazy_pages(Pagemap& pagemap, const std::vector<criu::vma_entry>& mappings);
Result<void> write_pagemap(const Pagemap& pagemap);

}  // namespace ckpt::agent::host
