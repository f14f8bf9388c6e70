// SPDX-License-Identifier: Apache-2.0
// Pages of a process that are not in a file of pages of CRIU's but in the memory log. That is one file for all
// processes (kMemoryLog), in the order in which pages were sent. An index beside a process's pagemap
// (memory-N.index) tells where in the log each of its pages is.
// The file: magic u64 | version u32 | count u32 | count x IndexedRange, ascending and apart.
// At the target the index becomes what CRIU's restore wants. That is a file of pages, which has those bytes only
// that come with the process, and the plan of those that follow (lazy_pages_choice.h).
// Threads: any; files are read and written (offload). Errors: kCorrupt for an index that is malformed, or does not
// fit the log or the pagemap (both come from another node); kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct Pagemap;

// Its name in a folder of images: a file of pages with a number that CRIU does not use.
inline constexpr std::uint32_t kMemoryLogNumber = 0;
inline constexpr const char* kMemoryLog = "pages-0.img";

// Whole pages.
struct IndexedRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the log
  friend bool operator==(const IndexedRange&, const IndexedRange&) = default;
};

// The pages that a dump has of a process.
struct DumpedPages {
  std::uint32_t process = 0;  // its id in its own PID namespace; 0: memory that processes share
  std::uint32_t pages_file = 0;
  std::vector<IndexedRange> ranges;  // in the order of that file; `offset`: in it
};
// Returns the pages of all processes, and those of memory that they share.
Result<std::vector<DumpedPages>> dumped_pages(const std::string& images);

Result<void> write_memory_index(const std::string& images, std::uint32_t pages_file,
                                const std::vector<IndexedRange>& index);
[[nodiscard]] bool has_memory_index(const std::string& images, std::uint32_t pages_file);

class MemoryIndex {
 public:
  static Result<MemoryIndex> read(const std::string& images, std::uint32_t pages_file);
  // `log_bytes`: how long the log is.
  static Result<MemoryIndex> parse(const std::string& text, std::uint64_t log_bytes);
  // The log's places of [address, address + bytes), by address. kCorrupt: some of it is not there.
  [[nodiscard]] Result<std::vector<IndexedRange>> find(std::uint64_t address, std::uint64_t bytes) const;
  // Makes the file of pages for CRIU: of the pagemap's pages those that are not lazy.
  [[nodiscard]] Result<void> write_pages(const std::string& images, const Pagemap& pagemap) const;

 private:
  explicit MemoryIndex(std::vector<IndexedRange> ranges) : ranges_(std::move(ranges)) {}
  std::vector<IndexedRange> ranges_;
};

}  // namespace ckpt::agent::host
