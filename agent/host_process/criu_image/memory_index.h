// SPDX-License-Identifier: Apache-2.0
// The index of a process's pages that are in the memory log instead of a file of pages. The log is one file
// for all processes (kMemoryLog), in the order in which the pages were sent. The index is stored next to the
// process's pagemap (memory-N.index) and contains the position of each page in the log. The file has the
// format magic u64 | version u32 | count u32 | count x IndexedRange. The ranges are ascending and do not
// touch. The target creates two files for CRIU's restore from the index. The first is a file of pages, with
// only the bytes that are restored before the process runs. The second is the plan of the bytes that follow
// (lazy_pages_choice.h).
// Threads: any. The functions read and write files (use offload()). Errors: kCorrupt for an index that is
// malformed, or does not match the log or the pagemap. Both files come from another node. kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

struct Pagemap;

// The log's name in a folder of images. It has the form of a file of pages, with a number that CRIU does not
// use.
inline constexpr std::uint32_t kMemoryLogNumber = 0;
inline constexpr const char* kMemoryLog = "pages-0.img";

// A range of whole pages in the memory log.
struct IndexedRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // position of the range in the log
  friend bool operator==(const IndexedRange&, const IndexedRange&) = default;
};

// The pages of one process in a dump.
struct DumpedPages {
  std::uint32_t process = 0;  // id of the process in its own PID namespace; 0 for memory that processes share
  std::uint32_t pages_file = 0;
  std::vector<IndexedRange> ranges;  // ranges in the order of CRIU's file of pages; `offset` is a position in
                                     // that file
};
// Returns the pages of all processes, and the pages of memory that the processes share.
Result<std::vector<DumpedPages>> dumped_pages(const std::string& images);

Result<void> write_memory_index(const std::string& images, std::uint32_t pages_file,
                                const std::vector<IndexedRange>& index);
[[nodiscard]] bool has_memory_index(const std::string& images, std::uint32_t pages_file);

class MemoryIndex {
 public:
  static Result<MemoryIndex> read(const std::string& images, std::uint32_t pages_file);
  // Parses the text of an index. `log_bytes` is the length of the log.
  static Result<MemoryIndex> parse(const std::string& text, std::uint64_t log_bytes);
  // Returns the positions of [address, address + bytes) in the log, by address. kCorrupt means that the log
  // lacks a part of the range.
  [[nodiscard]] Result<std::vector<IndexedRange>> find(std::uint64_t address, std::uint64_t bytes) const;
  // Writes the file of pages for CRIU, with the pages of the pagemap that are not lazy.
  [[nodiscard]] Result<void> write_pages(const std::string& images, const Pagemap& pagemap) const;

 private:
  explicit MemoryIndex(std::vector<IndexedRange> ranges) : ranges_(std::move(ranges)) {}
  std::vector<IndexedRange> ranges_;
};

}  // namespace ckpt::agent::host
