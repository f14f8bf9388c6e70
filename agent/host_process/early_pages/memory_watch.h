// SPDX-License-Identifier: Apache-2.0
// Finds pages of a process written since the last look. This is userfaultfd write protection that the kernel
// resolves by itself (UFFD_FEATURE_WP_ASYNC), read with PAGEMAP_SCAN (Linux 6.7 and newer;
// ioctl_userfaultfd(2), Documentation/admin-guide/mm/pagemap.rst). The process notices nothing but a minor
// fault at the first write to a page. The end of the watch takes all of it back. Writes that the kernel does
// not see are not found: those of devices into memory that was given to them. Others may watch the same
// memory: a process that shares it (vfork, CLONE_VM) has a watch of its own. A mapping has one watch at a
// time, and only what this one has watched all the time is its own.
// Threads: one caller at a time; every call blocks for up to milliseconds (offload()). Errors: kNotSupported
// (kernel), kNotFound (the process has ended), errno.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "agent/host_process/early_pages/memory_range.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Pages of a range, by address.
struct PresentPages {
  std::vector<MemoryRange> present;
  std::vector<MemoryRange> written;  // those written since the last take_written()
};

// Checks that this kernel can watch memory, and allows it to this process.
[[nodiscard]] bool kernel_watches_memory();

class MemoryWatch {
 public:
  // Stops the process for a moment (userfaultfd_of.h).
  static Result<MemoryWatch> create(pid_t pid);
  // Watches nothing, and finds what others watch. Nothing is done to the process.
  static MemoryWatch onlooker(pid_t pid) { return {pid, UniqueFd()}; }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  // Returns the memory that can be watched, by address: private memory without a file. The calls below
  // concern the memory that the process has at this call. After an exec, or if another process has the
  // number, none of it is watched.
  Result<std::vector<MemoryRange>> mappings();
  // True if all of the range has a watch, this or another one.
  [[nodiscard]] Result<bool> is_watched(const MemoryRange& range) const;
  // True if any memory of the process has a watch. Called after mappings().
  [[nodiscard]] Result<bool> has_watched_memory() const;

  struct Follow {
    bool is_watched = false;  // false: it cannot be watched, or another watch has it
    std::vector<MemoryRange>
        fresh;  // not this watch's own for all the time since the last call, so nothing is known of it
  };
  // Watches all of the range, one of mappings(), from now on. A mapping that is new at an old place is fresh.
  Result<Follow> follow(const MemoryRange& range);
  // Returns the part of the range that this watch has watched since follow(). The process must be stopped.
  Result<std::vector<MemoryRange>> own(const MemoryRange& range);

  // The pages of the range that were written since the last take_written(), from `from` on: some of them.
  // Those count as not written from here on, so they are read after this. Returns where to go on; range.end:
  // that was all. Zero pages are none, and pages that nobody watches. After an error nothing is known of the
  // pages from `from` on: some of them may count as not written.
  Result<std::uint64_t> take_written(const MemoryRange& range, std::uint64_t from,
                                     std::vector<MemoryRange>& written);
  // Adds all pages of the range to `found` that are not zero pages, guards or absent. Written pages stay
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
  UniqueFd pagemap_;  // of mappings(): it stays with the memory that the process had then
  RangeSet own_;      // registered by this watch, and not seen without a watch since
};

// Reads pages of a process to `to`, which takes one range after the other. kRefused: a page cannot be
// read. `stopped`: nothing of it changes meanwhile, and also pages are read that the process itself may not.
Result<void> read_memory(pid_t pid, const std::vector<MemoryRange>& ranges, std::byte* to, bool stopped);

}  // namespace ckpt::agent::host
