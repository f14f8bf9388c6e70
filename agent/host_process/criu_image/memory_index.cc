// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/memory_index.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/pagemap.h"
#include "agent/keeper/lazy_pages/plan.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

using lazy_pages::kPageBytes;

constexpr std::uint64_t kMagic = 0x3158'444e'494d'4d47;  // the bytes "GMMINDX1"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMaxIndexBytes = std::size_t{512} << 20;
constexpr std::uint64_t kMaxPages = std::uint64_t{1} << 57;  // limit for one file of pages, in bytes

struct IndexHead {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t count = 0;
};
static_assert(sizeof(IndexHead) == 16 && sizeof(IndexedRange) == 24);

std::string index_path(const std::string& images, std::uint32_t pages_file) {
  return images + "/memory-" + std::to_string(pages_file) + ".index";
}

std::string pages_path(const std::string& images, std::uint32_t pages_file) {
  return images + "/pages-" + std::to_string(pages_file) + ".img";
}

Result<std::uint64_t> log_bytes(const std::string& images) {
  const std::string path = images + "/" + kMemoryLog;
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return Error::from_errno("Cannot read " + path);
  return static_cast<std::uint64_t>(facts.st_size);
}

bool is_possible(const IndexedRange& range, std::uint64_t after, std::uint64_t log) {
  return range.bytes > 0 && (range.address | range.bytes | range.offset) % kPageBytes == 0 &&
         range.address >= after && range.address + range.bytes > range.address && range.bytes <= log &&
         range.offset <= log - range.bytes;
}

// Writes the bytes of `range` in the file `from` at the current position of `to`.
Result<void> copy(int to, int from, const IndexedRange& range) {
  auto at = static_cast<off_t>(range.offset);
  for (std::uint64_t left = range.bytes; left > 0;) {
    const ssize_t done = ::sendfile(to, from, &at, left);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Error::from_errno("Cannot copy pages out of the memory log");
    if (done == 0) return strange_image("the memory log is truncated");
    left -= static_cast<std::uint64_t>(done);
  }
  return ok();
}

}  // namespace

Result<std::vector<DumpedPages>> dumped_pages(const std::string& images) {
  CKPT_TRY(pagemaps, read_all_pagemaps(images));
  std::vector<DumpedPages> dumped;
  for (const Pagemap& pagemap : pagemaps) {
    DumpedPages& pages = dumped.emplace_back();
    pages.process = pagemap.process;
    pages.pages_file = pagemap.pages_file;
    std::uint64_t offset = 0;
    for (const criu::pagemap_entry& entry : pagemap.entries) {
      if (!is_present(entry)) continue;
      const std::uint64_t bytes = bytes_of_entry(entry);
      pages.ranges.push_back({entry.vaddr(), bytes, offset});
      offset += bytes;
    }
  }
  return dumped;
}

Result<void> write_memory_index(const std::string& images, std::uint32_t pages_file,
                                const std::vector<IndexedRange>& index) {
  const std::string path = index_path(images, pages_file);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error::from_errno("Cannot create " + path);
  IndexHead head;
  head.count = static_cast<std::uint32_t>(index.size());
  CKPT_TRYV(write_all(file.get(), std::as_bytes(std::span(&head, 1))));
  return write_all(file.get(), std::as_bytes(std::span(index)));
}

bool has_memory_index(const std::string& images, std::uint32_t pages_file) {
  return ::access(index_path(images, pages_file).c_str(), F_OK) == 0;
}

Result<MemoryIndex> MemoryIndex::read(const std::string& images, std::uint32_t pages_file) {
  CKPT_TRY(text, read_file(index_path(images, pages_file), kMaxIndexBytes));
  CKPT_TRY(log, log_bytes(images));
  return parse(text, log);
}

Result<MemoryIndex> MemoryIndex::parse(const std::string& text, std::uint64_t log_bytes) {
  IndexHead head;
  if (text.size() < sizeof head) return strange_image("the index of a memory log is too short");
  std::memcpy(&head, text.data(), sizeof head);
  if (head.magic != kMagic || head.version != kVersion ||
      text.size() - sizeof head != head.count * sizeof(IndexedRange))
    return strange_image("the index of a memory log has an unknown kind or version");
  std::vector<IndexedRange> ranges(head.count);
  if (!ranges.empty()) std::memcpy(ranges.data(), text.data() + sizeof head, text.size() - sizeof head);
  std::uint64_t after = 0;
  for (const IndexedRange& range : ranges) {
    if (!is_possible(range, after, log_bytes))
      return strange_image("the index of a memory log has an invalid range");
    after = range.address + range.bytes;
  }
  return MemoryIndex(std::move(ranges));
}

Result<std::vector<IndexedRange>> MemoryIndex::find(std::uint64_t address, std::uint64_t bytes) const {
  const auto behind = [](std::uint64_t at, const IndexedRange& range) {
    return at < range.address + range.bytes;
  };
  auto range = std::upper_bound(ranges_.begin(), ranges_.end(), address, behind);
  std::vector<IndexedRange> found;
  for (const std::uint64_t end = address + bytes; address < end; ++range) {
    if (range == ranges_.end() || range->address > address)
      return strange_image("the index of a memory log lacks pages");
    const std::uint64_t skipped = address - range->address;
    const std::uint64_t here = std::min(range->bytes - skipped, end - address);
    found.push_back({address, here, range->offset + skipped});
    address += here;
  }
  return found;
}

Result<void> MemoryIndex::write_pages(const std::string& images, const Pagemap& pagemap) const {
  const std::string path = pages_path(images, pagemap.pages_file);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error::from_errno("Cannot create " + path);
  const std::string log_path = images + "/" + kMemoryLog;
  const UniqueFd log(::open(log_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!log) return Error::from_errno("Cannot open " + log_path);
  std::uint64_t offset = 0;
  for (const criu::pagemap_entry& entry : pagemap.entries) {
    if (!is_present(entry)) continue;
    const std::uint64_t bytes = bytes_of_entry(entry);
    if (bytes > kMaxPages - offset) return strange_image("a pagemap has more pages than a process can have");
    if (!can_be_lazy(entry)) {
      CKPT_TRY(places, find(entry.vaddr(), bytes));
      if (::lseek(file.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
        return Error::from_errno("Cannot create " + path);
      for (const IndexedRange& place : places) {
        CKPT_TRYV(copy(file.get(), log.get(), place));
      }
    }
    offset += bytes;
  }
  // Pages that follow the process have a position in the file, but no bytes.
  if (::ftruncate(file.get(), static_cast<off_t>(offset)) != 0)
    return Error::from_errno("Cannot create " + path);
  return ok();
}

}  // namespace ckpt::agent::host
