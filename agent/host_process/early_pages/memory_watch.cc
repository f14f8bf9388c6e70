// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/memory_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include "agent/host_process/early_pages/userfaultfd_of.h"
#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {
namespace {

// Definitions from the headers of Linux 6.7, because the installed headers may be older
// (include/uapi/linux/userfaultfd.h, fs.h).
constexpr std::uint64_t kFeatureWriteAsync = 1u << 15;  // the flag UFFD_FEATURE_WP_ASYNC

struct PageRegion {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
struct ScanOrder {
  std::uint64_t size = sizeof(ScanOrder);
  std::uint64_t flags = 0;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t walk_end = 0;
  std::uint64_t vec = 0;
  std::uint64_t vec_len = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t category_inverted = 0;
  std::uint64_t category_mask = 0;
  std::uint64_t category_anyof_mask = 0;
  std::uint64_t return_mask = 0;
};
static_assert(sizeof(ScanOrder) == 96 && sizeof(PageRegion) == 24);
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanOrder);
constexpr std::uint64_t kScanProtects = 1u << 0;   // the flag PM_SCAN_WP_MATCHING
constexpr std::uint64_t kScanIsWatched = 1u << 1;  // the flag PM_SCAN_CHECK_WPASYNC
constexpr std::uint64_t kPageWatched = 1u << 0;    // PAGE_IS_WPALLOWED, a property of the page's mapping
constexpr std::uint64_t kPageWritten = 1u << 1;
constexpr std::uint64_t kPagePresent = 1u << 3;
constexpr std::uint64_t kPageSwapped = 1u << 4;
constexpr std::uint64_t kPageZero = 1u << 5;
constexpr std::uint64_t kPageGuard = 1u << 8;  // PAGE_IS_GUARD, which later kernels define

constexpr std::size_t kRegions = 512;             // maximum number of regions that one scan returns
constexpr std::size_t kMaxVectors = 512;          // maximum number of vectors in one read; IOV_MAX is 1024
constexpr std::uint64_t kMaxPagesAtOnce = 16384;  // 64 MiB; the limit lets the caller read the pages soon
                                                  // after the scan
constexpr MemoryRange kAllMemory{0, 0x7fff'ffff'f000};  // all addresses that a program can use

// Returns the categories of pages to leave out: zero pages, and also guard pages if the kernel has a category
// for them.
std::uint64_t find_unwanted() {
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  ScanOrder order;
  order.category_inverted = order.category_mask = kPageZero | kPageGuard;
  order.return_mask = kPagePresent;
  const bool knows_guards = ::ioctl(pagemap.get(), kPagemapScan, &order) >= 0;
  return knows_guards ? kPageZero | kPageGuard : kPageZero;
}

std::uint64_t unwanted_pages() {
  static const std::uint64_t kUnwanted = find_unwanted();
  return kUnwanted;
}

void add_range(std::vector<MemoryRange>& to, const PageRegion& region) {
  if (!to.empty() && to.back().end == region.start) {
    to.back().end = region.end;
  } else {
    to.push_back({region.start, region.end});
  }
}

bool may_be_watched(const char* rights, unsigned long long inode, const std::string& name) {
  return rights[3] == 'p' && inode == 0 && name != "[vvar]" && name != "[vdso]" && name != "[vsyscall]" &&
         name != "[vvar_vclock]" && !name.starts_with("/");
}

Result<void> read_by_file(int memory, const MemoryRange& range, std::byte* to) {
  for (std::uint64_t done = 0; done < range.bytes();) {
    const ssize_t got =
        ::pread(memory, to + done, range.bytes() - done, static_cast<off_t>(range.begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read memory of a process");
    if (got == 0) return Error(ErrorCode::kRefused, "A page of a process cannot be read");
    done += static_cast<std::uint64_t>(got);
  }
  return ok();
}

// Enables asynchronous write protection on a new userfaultfd. Returns false if the kernel does not support
// it.
bool set_up(const UniqueFd& faults) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatureWriteAsync;
  return ::ioctl(faults.get(), UFFDIO_API, &api) == 0;
}

}  // namespace

// The parameters of a scan: which pages it finds, and whether it protects them again (struct pm_scan_arg).
struct MemoryWatch::Question {
  std::uint64_t flags = 0;
  std::uint64_t inverted = 0;
  std::uint64_t mask = 0;
  std::uint64_t any_of = 0;
  std::uint64_t returned = 0;
  std::uint64_t max_pages = 0;  // maximum number of pages; 0 means all pages
};

bool kernel_watches_memory() {
  static const bool kWatches = [] {
    const UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
    return faults && set_up(faults);
  }();
  return kWatches;
}

Result<MemoryWatch> MemoryWatch::create(pid_t pid) {
  CKPT_TRY(faults, userfaultfd_of(pid));
  if (!set_up(faults))
    return Error(ErrorCode::kNotSupported, ErrorDomain::kErrno, errno,
                 "This kernel cannot track memory writes asynchronously: Linux 6.7 or newer is needed");
  return MemoryWatch(pid, std::move(faults));
}

Result<std::vector<MemoryRange>> MemoryWatch::mappings() {
  const std::string path = proc_path(pid_, "/pagemap");
  pagemap_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pagemap_) return Error(ErrorCode::kNotFound, ErrorDomain::kErrno, errno, "Cannot open " + path);
  std::vector<MemoryRange> found;
  std::ifstream maps(proc_path(pid_, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    std::array<char, 5> rights{};
    unsigned long long inode = 0;
    int name_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %llu %n", &begin, &end, rights.data(), &inode,
                    &name_at) < 4)
      continue;
    if (may_be_watched(rights.data(), inode, line.substr(std::min<std::size_t>(name_at, line.size()))))
      found.push_back({begin, end});
  }
  if (found.empty()) return Error(ErrorCode::kNotFound, "Process " + std::to_string(pid_) + " has ended");
  return found;
}

// Checks whether a watch covers all of the range. The scan requests only unwatched pages. A watched mapping
// has no such pages, so the kernel skips it without checking its pages.
Result<bool> MemoryWatch::is_watched(const MemoryRange& range) const {
  const Question question{
      .flags = kScanIsWatched, .inverted = kPageWatched, .mask = kPageWatched, .returned = kPageWatched};
  PresentPages none;
  const auto looked = scan(range, range.begin, question, none);
  if (looked) return true;
  if (looked.error().code() == ErrorCode::kRefused) return false;
  return looked.error();
}

Result<bool> MemoryWatch::has_watched_memory() const {
  const Question question{.mask = kPageWatched, .returned = kPageWatched, .max_pages = 1};
  PresentPages found;
  CKPT_TRYV(scan(kAllMemory, kAllMemory.begin, question, found));
  return !found.present.empty();
}

Result<bool> MemoryWatch::watch(const MemoryRange& range) {
  uffdio_register order{};
  order.range = {range.begin, range.bytes()};
  order.mode = UFFDIO_REGISTER_MODE_WP;
  if (::ioctl(faults_.get(), UFFDIO_REGISTER, &order) == 0) {
    own_.add(range);
    return true;
  }
  if (errno == ESRCH) return Error(ErrorCode::kNotFound, "Process " + std::to_string(pid_) + " has ended");
  own_.remove(range);
  return false;
}

// Removes from this watch's own ranges the memory that no longer has a watch.
Result<void> MemoryWatch::drop_unwatched(const MemoryRange& range) {
  const Question question{.mask = kPageWatched, .returned = kPageWatched};
  RangeSet unwatched;
  unwatched.add(range);
  for (std::uint64_t at = range.begin; at < range.end;) {
    PresentPages found;
    CKPT_TRY(next, scan(range, at, question, found));
    if (next <= at) return Error(ErrorCode::kInternal, "The scan of a process's memory makes no progress");
    for (const MemoryRange& watched : found.present) unwatched.remove(watched);
    at = next;
  }
  for (const MemoryRange& gap : unwatched.common(range)) own_.remove(gap);
  return ok();
}

// Watches all of the range. Only this function makes memory watched. Therefore an own range has been watched
// without a gap if every check found it watched. New parts are registered separately. A mapping that replaces
// an own mapping in the meantime stays unwatched.
Result<MemoryWatch::Follow> MemoryWatch::follow(const MemoryRange& range) {
  CKPT_TRY(all, is_watched(range));
  if (!all) {
    CKPT_TRYV(drop_unwatched(range));
  }
  Follow follow{.is_watched = true, .fresh = own_.missing(range)};
  for (const MemoryRange& part : follow.fresh) {
    CKPT_TRY(can_be, watch(part));
    follow.is_watched = follow.is_watched && can_be;
  }
  return follow;
}

// Returns the own part of the range. Each part is registered again as a check. The registration changes
// nothing for an own range, and fails where a mapping of another watch has replaced the range.
Result<std::vector<MemoryRange>> MemoryWatch::own(const MemoryRange& range) {
  CKPT_TRY(all, is_watched(range));
  if (!all) {
    CKPT_TRYV(drop_unwatched(range));
  }
  const std::vector<MemoryRange> parts = own_.common(range);
  std::vector<MemoryRange> found;
  for (const MemoryRange& part : parts) {
    CKPT_TRY(is_own, watch(part));
    if (is_own) found.push_back(part);
  }
  return found;
}

Result<std::uint64_t> MemoryWatch::scan(const MemoryRange& range, std::uint64_t from,
                                        const Question& question, PresentPages& found) const {
  std::array<PageRegion, kRegions> regions{};
  ScanOrder order;
  order.flags = question.flags;
  order.start = from;
  order.end = range.end;
  order.vec = reinterpret_cast<std::uint64_t>(regions.data());
  order.vec_len = regions.size();
  order.max_pages = question.max_pages;
  order.category_inverted = question.inverted;
  order.category_mask = question.mask;
  order.category_anyof_mask = question.any_of;
  order.return_mask = question.returned;
  const int count = ::ioctl(pagemap_.get(), kPagemapScan, &order);
  if (count < 0 && errno == EPERM)
    return Error(ErrorCode::kRefused, ErrorDomain::kErrno, EPERM,
                 "The kernel no longer tracks writes to the memory of a process");
  if (count < 0 && errno == ESRCH)
    return Error(ErrorCode::kNotFound, ErrorDomain::kErrno, ESRCH,
                 "Process " + std::to_string(pid_) + " has replaced its memory (exec), or has exited");
  if (count < 0) return Error::from_errno("Cannot find the written pages of process " + std::to_string(pid_));
  for (int i = 0; i < count; ++i) {
    const PageRegion& region = regions[static_cast<std::size_t>(i)];
    add_range(found.present, region);
    if ((region.categories & kPageWritten) != 0) add_range(found.written, region);
  }
  return order.walk_end;
}

// Returns the written pages. This scan does not use kScanIsWatched. With that flag, a scan fails at the first
// mapping without a watch, after it may have handled earlier pages without reporting them. This scan skips
// unwatched mappings instead.
Result<std::uint64_t> MemoryWatch::collect_written(const MemoryRange& range, std::uint64_t from,
                                                   std::vector<MemoryRange>& written) {
  const Question question{.flags = kScanProtects,
                          .inverted = unwanted_pages(),
                          .mask = kPageWatched | kPageWritten | unwanted_pages(),
                          .any_of = kPagePresent | kPageSwapped,
                          .returned = kPageWritten,
                          .max_pages = kMaxPagesAtOnce};
  PresentPages found;
  found.written = std::move(written);
  auto next = scan(range, from, question, found);
  written = std::move(found.written);
  if (next && *next <= from)
    return Error(ErrorCode::kInternal, "The scan of a process's memory makes no progress");
  return next;
}

Result<void> MemoryWatch::find_present(const MemoryRange& range, PresentPages& found) const {
  const Question question{.inverted = unwanted_pages(),
                          .mask = unwanted_pages(),
                          .any_of = kPagePresent | kPageSwapped,
                          .returned = kPageWritten};
  for (std::uint64_t at = range.begin; at < range.end;) {
    CKPT_TRY(next, scan(range, at, question, found));
    if (next <= at) return Error(ErrorCode::kInternal, "The scan of a process's memory makes no progress");
    at = next;
  }
  return ok();
}

Result<void> read_memory(pid_t pid, const std::vector<MemoryRange>& ranges, std::byte* to, bool stopped) {
  UniqueFd memory;
  for (std::size_t first = 0; first < ranges.size();) {
    std::array<iovec, kMaxVectors> there{};
    const std::size_t count = std::min(kMaxVectors, ranges.size() - first);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const MemoryRange& range = ranges[first + i];
      there[i] = {reinterpret_cast<void*>(range.begin), range.bytes()};
      bytes += range.bytes();
    }
    iovec here{to, bytes};
    const ssize_t got = ::process_vm_readv(pid, &here, 1, there.data(), count, 0);
    if (got != static_cast<ssize_t>(bytes)) {
      if (!stopped)
        return Error(ErrorCode::kRefused, "Pages of a process were unmapped while they were read");
      if (!memory) memory.reset(::open(proc_path(pid, "/mem").c_str(), O_RDONLY | O_CLOEXEC));
      if (!memory) return Error::from_errno("Cannot open the memory of process " + std::to_string(pid));
      std::byte* at = to;
      for (std::size_t i = 0; i < count; ++i) {
        CKPT_TRYV(read_by_file(memory.get(), ranges[first + i], at));
        at += ranges[first + i].bytes();
      }
    }
    to += bytes;
    first += count;
  }
  return ok();
}

}  // namespace ckpt::agent::host
