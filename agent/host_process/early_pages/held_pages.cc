// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/held_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "agent/host_process/early_pages/memory_watch.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint64_t kPagesAtOnce = 256;  // number of pages in a batch; 256 pages are 1 MiB

// Checks whether a page is present. The kernel may remove a page that the program has released (MADV_FREE) at
// any time. Therefore a removed page does not count as different.
Result<bool> is_there(pid_t pid, std::uint64_t address) {
  MemoryWatch look = MemoryWatch::onlooker(pid);
  CKPT_TRYV(look.mappings());
  PresentPages found;
  CKPT_TRYV(look.find_present({address, address + kMemoryPage}, found));
  return !found.present.empty();
}

// Reads a batch of pages at once. Adjacent pages form one range.
class Batch {
 public:
  Batch(pid_t pid, const MemoryLog& log) : pid_(pid), log_(log), read_(kPagesAtOnce * kMemoryPage) {}

  Result<void> add(std::uint64_t address, std::uint64_t offset) {
    if (!ranges_.empty() && ranges_.back().end == address) {
      ranges_.back().end += kMemoryPage;
    } else {
      ranges_.push_back({address, address + kMemoryPage});
    }
    pages_.push_back({address, offset});
    return pages_.size() < kPagesAtOnce ? ok() : compare();
  }

  Result<void> compare() {
    CKPT_TRYV(read_memory(pid_, ranges_, read_.data(), true));
    const std::byte* page = read_.data();
    for (const Page& held : pages_) {
      const bool is_same = std::memcmp(page, log_.at(held.offset, kMemoryPage).data(), kMemoryPage) == 0;
      if (!is_same) {
        CKPT_TRY(counts, is_there(pid_, held.address));
        if (counts) return differs(held.address);
      }
      page += kMemoryPage;
    }
    ranges_.clear();
    pages_.clear();
    return ok();
  }

 private:
  struct Page {
    std::uint64_t address;
    std::uint64_t offset;
  };
  [[nodiscard]] Error differs(std::uint64_t address) const {
    return {ErrorCode::kCorrupt,
            fmt::format("The page at {:#x} of process {} differs from its copy, which was made before the "
                        "pause, though no write was detected: move the job with --stop-copy, which reads all "
                        "memory during the pause, and report this as a bug",
                        address, pid_)};
  }

  const pid_t pid_;
  const MemoryLog& log_;
  std::vector<std::byte> read_;
  std::vector<MemoryRange> ranges_;
  std::vector<Page> pages_;
};

}  // namespace

Result<void> compare_pages(pid_t pid, const std::vector<IndexedRange>& held, const MemoryLog& log) {
  Batch batch(pid, log);
  for (const IndexedRange& range : held) {
    for (std::uint64_t done = 0; done < range.bytes; done += kMemoryPage) {
      CKPT_TRYV(batch.add(range.address + done, range.offset + done));
    }
  }
  return batch.compare();
}

Result<void> compare_some_pages(pid_t pid, const std::vector<IndexedRange>& held, const MemoryLog& log,
                                std::uint64_t limit, std::mt19937_64& random) {
  std::uint64_t pages = 0;
  for (const IndexedRange& range : held) pages += range.bytes / kMemoryPage;
  if (pages <= limit) return compare_pages(pid, held, log);
  std::set<std::uint64_t> drawn;  // positions of the drawn pages among all held pages
  std::uniform_int_distribution<std::uint64_t> any(0, pages - 1);
  for (std::uint64_t i = 0; i < limit; ++i) drawn.insert(any(random));
  Batch batch(pid, log);
  std::uint64_t first = 0;  // position of the range's first page among all held pages
  auto range = held.begin();
  for (const std::uint64_t page : drawn) {
    for (; page >= first + range->bytes / kMemoryPage; ++range) first += range->bytes / kMemoryPage;
    const std::uint64_t into = (page - first) * kMemoryPage;
    CKPT_TRYV(batch.add(range->address + into, range->offset + into));
  }
  return batch.compare();
}

}  // namespace ckpt::agent::host
