// SPDX-License-Identifier: Apache-2.0
// The index of a process's pages that are in the memory log instead of a file of pages. The log is one file
// for all processes (kMemoryLog), in the order in which pages were sent. The index lies beside the process's
// pagemap (memory-N.index) and has the place of each page in the log. The file: magic u64 | version u32 |
// count u32 | count x IndexedRange, ascending and apart. The target makes two files for CRIU's restore out of
// the index. One is a file of pages, with only the bytes that come with the process. The other is the plan of
// the bytes that follow (lazy_pages_choice.h).
// Threads: any; files are read and written (offload). Errors: kCorrupt for an index that is malformed, or
// does not fit the log or the pagemap (both come from another node); kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct Pagemap;

// The log's name in a folder of images: a file of pages with a number that CRIU does not use.
inline constexpr std::uint32_t kMemoryLogNumber = 0;
inline constexpr const char* kMemoryLog = "pages-0.img";

// A range of whole pages.
struct IndexedRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // its place in the log
  friend bool operator==(const IndexedRange&, const IndexedRange&) = default;
};

// The pages that a dump has of a process.
struct DumpedPages {
  std::uint32_t process = 0;  // its id in its own PID namespace; 0: memory that processes share
  std::uint32_t pages_file = 0;
  std::vector<IndexedRange> ranges;  // in the order of that file; `offset` is its place there
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
  // Returns the places of [address, address + bytes) in the log, by address. kCorrupt: the log lacks some of
  // it.
  [[nodiscard]] Result<std::vector<IndexedRange>> find(std::uint64_t address, std::uint64_t bytes) const;
  // Makes the file of pages for CRIU: the pages of the pagemap that are not lazy.
  [[nodiscard]] Result<void> write_pages(const std::string& images, const Pagemap& pagemap) const;

 private:
  explicit MemoryIndex(std::vector<IndexedRange> ranges) : ranges_(std::move(ranges)) {}
  std::vector<IndexedRange> ranges_;
};

}  // namespace ckpt::agent::host
