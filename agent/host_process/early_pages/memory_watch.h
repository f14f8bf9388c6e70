// SPDX-License-Identifier: Apache-2.0
// Finds the pages of a process that were written since the last check. The watch is userfaultfd write
// protection that the kernel resolves automatically (UFFD_FEATURE_WP_ASYNC). PAGEMAP_SCAN reads the result
// (Linux 6.7 and newer; ioctl_userfaultfd(2), Documentation/admin-guide/mm/pagemap.rst). The process has a
// minor fault at the first write to a page, and notices nothing else. The destructor of the watch removes all
// protection. The watch does not find writes that bypass the page tables, such as those of devices into
// memory that was registered with them. Other watches may exist for the same memory: a process that shares
// the memory (vfork, CLONE_VM) has its own watch. A mapping has one watch at a time. A watch owns only the
// memory that it has covered without a gap.
// Threads: one caller at a time. Every call blocks for up to milliseconds (use offload()). Errors:
// kNotSupported (kernel), kNotFound (the process has exited), errno.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "agent/host_process/early_pages/memory_range.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The present pages of a range, by address.
struct PresentPages {
  std::vector<MemoryRange> present;
  std::vector<MemoryRange> written;  // those of the present pages that were written since the last
                                     // collect_written()
};

// Checks whether this kernel can watch memory and permits it to this process.
[[nodiscard]] bool kernel_watches_memory();

class MemoryWatch {
 public:
  // Creates a watch for process `pid`. The function stops the process briefly (userfaultfd_of.h).
  static Result<MemoryWatch> create(pid_t pid);
  // Creates a watch that protects nothing and only finds what other watches cover. The process is not
  // changed.
  static MemoryWatch onlooker(pid_t pid) { return {pid, UniqueFd()}; }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  // Returns the memory that can be watched, by address. Only private memory without a file can be watched.
  // The other functions concern the memory that the process had at the last call of mappings(). After an
  // exec, or if another process has the pid, none of that memory is watched.
  Result<std::vector<MemoryRange>> mappings();
  // Checks whether a watch covers all of the range. The watch may be this or another one.
  [[nodiscard]] Result<bool> is_watched(const MemoryRange& range) const;
  // Checks whether a watch covers any memory of the process. Call mappings() first.
  [[nodiscard]] Result<bool> has_watched_memory() const;

  struct Follow {
    bool is_watched = false;  // false if a part of the range cannot be watched, or another watch covers it
    std::vector<MemoryRange>
        fresh;  // ranges that this watch did not cover without a gap before this call, so writes to them may
                // be unknown
  };
  // Watches all of `range`, a range of mappings(), from now on. A new mapping at the address of an old one
  // counts as fresh.
  Result<Follow> follow(const MemoryRange& range);
  // Returns the part of the range that this watch has watched since follow(). The process must be stopped.
  Result<std::vector<MemoryRange>> own(const MemoryRange& range);

  // Adds to `written` some of the pages of `range` that were written since the last collect_written(),
  // starting at `from`. These pages count as not written from now on, so the caller reads them afterwards.
  // The function returns the address where the next call continues. The address range.end means that all
  // pages were returned. Zero pages and unwatched pages are never returned. After an error the state of the
  // pages from `from` on is unknown, and some of them may count as not written.
  Result<std::uint64_t> collect_written(const MemoryRange& range, std::uint64_t from,
                                        std::vector<MemoryRange>& written);
  // Adds to `found` all pages of `range` except zero pages, guard pages and absent pages. Written pages stay
  // marked as written.
  Result<void> find_present(const MemoryRange& range, PresentPages& found) const;

 private:
  struct Question;
  MemoryWatch(pid_t pid, UniqueFd faults) : pid_(pid), faults_(std::move(faults)) {}
  Result<bool> watch(const MemoryRange& range);
  Result<void> drop_unwatched(const MemoryRange& range);
  Result<std::uint64_t> scan(const MemoryRange& range, std::uint64_t from, const Question& question,
                             PresentPages& found) const;

  pid_t pid_;
  UniqueFd faults_;
  UniqueFd pagemap_;  // pagemap that mappings() opened; it refers to the memory that the process had then,
                      // even after an exec
  RangeSet own_;      // ranges that this watch registered and that were never found unwatched since
};

// Reads pages of a process to `to`, one range after the other. `stopped` means that the memory does not
// change during the call. The function then also reads pages that the process itself may not read. Error
// kRefused means that a page cannot be read.
Result<void> read_memory(pid_t pid, const std::vector<MemoryRange>& ranges, std::byte* to, bool stopped);

}  // namespace ckpt::agent::host
