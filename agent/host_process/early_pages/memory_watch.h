// SPDX-License-Identifier: Apache-2.0
// Which pages of a process were written since they were looked at. This is userfaultfd write protection that the
// kernel resolves by itself (UFFD_FEATURE_WP_ASYNC), read with PAGEMAP_SCAN (Linux 6.7 and newer; ioctl_userfaultfd(2),
// Documentation/admin-guide/mm/pagemap.rst). The process notices nothing but a minor fault at the first write to
// a page. The end of the watch takes all of it back.
// What the kernel does not see is not found: writes of devices into memory that was given to them.
// Threads: one caller at a time; every call blocks for up to milliseconds (offload()). Errors: kNotSupported
// (kernel), kNotFound (the process has ended), errno.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Whole pages [begin, end).
struct MemoryRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const MemoryRange&, const MemoryRange&) = default;
};

inline constexpr std::uint64_t kMemoryPage = 4096;

// Pages of a range, by address.
struct PresentPages {
  std::vector<MemoryRange> present;
  std::vector<MemoryRange> written;  // of these; since the last take_written()
};

// Whether this kernel can, and lets this process.
[[nodiscard]] bool kernel_watches_memory();

class MemoryWatch {
 public:
  // Stops the process for a moment (userfaultfd_of.h).
  static Result<MemoryWatch> create(pid_t pid);

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  // Private memory of no file: what can be watched. By address. What follows is about the memory that the process
  // has now: after an exec, or where another one has its number, nothing of it is watched.
  Result<std::vector<MemoryRange>> mappings();
  // Whether the range, one of mappings(), has been watched since the last call of watch() for it. A mapping that
  // is new at an old place is not.
  [[nodiscard]] Result<bool> is_watched(const MemoryRange& range) const;
  // From now on. False: it cannot be.
  Result<bool> watch(const MemoryRange& range);

  // The pages of a watched range that were written since the last take_written(), from `from` on: some of them.
  // Those count as not written from here on, so they are read after this. Returns where to go on;
  // range.end: that was all. Zero pages are none. kRefused: it is not watched any more.
  Result<std::uint64_t> take_written(const MemoryRange& range, std::uint64_t from,
                                     std::vector<MemoryRange>& written);
  // All pages of a watched range that are not zero pages, guards or absent. Adds to `found`; what was written
  // stays so. kRefused: it is not watched any more.
  Result<void> find_present(const MemoryRange& range, PresentPages& found) const;

 private:
  MemoryWatch(pid_t pid, UniqueFd faults) : pid_(pid), faults_(std::move(faults)) {}
  Result<std::uint64_t> scan(const MemoryRange& range, std::uint64_t from, std::uint64_t flags,
                             std::uint64_t wanted, PresentPages& found) const;

  pid_t pid_;
  UniqueFd faults_;
  UniqueFd pagemap_;  // of mappings(): it stays with the memory that the process had then
};

// Reads pages of a process to `to`, which takes one range after the other. kRefused: a page cannot be
// read. `stopped`: nothing of it changes meanwhile, and also pages are read that the process itself may not.
Result<void> read_memory(pid_t pid, const std::vector<MemoryRange>& ranges, std::byte* to, bool stopped);

}  // namespace ckpt::agent::host
