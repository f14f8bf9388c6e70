// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/pagemap.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/keeper/lazy_pages/plan.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

using lazy_pages::kPageBytes;

constexpr std::uint32_t kPagemapMagic = 0x56084025;
constexpr std::size_t kPagemapMagicBytes = 8;
constexpr std::uint32_t kMmMagic = 0x57492820;
constexpr std::uint64_t kMaxAddress = std::uint64_t{1} << 57;
constexpr std::string_view kNameBegin = "pagemap-";
constexpr std::string_view kSharedBegin = "pagemap-shmem-";

Result<std::uint32_t> process_in(const std::string& name) {
  const std::string digits = name.substr(kNameBegin.size());
  std::uint32_t process = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), process);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr) != ".img" || process == 0)
    return strange_image(name + " does not name a process");
  return process;
}

}  // namespace

std::uint64_t bytes_of_entry(const criu::pagemap_entry& entry) {
  return (entry.has_nr_pages() ? entry.nr_pages() : entry.compat_nr_pages()) * kPageBytes;
}

bool can_be_lazy(const criu::pagemap_entry& entry) {
  return (entry.flags() & kCanBeLazy) != 0;
}

bool can_be_lazy(const criu::vma_entry& mapping) {
  constexpr std::uint32_t kNeeded = MAP_ANONYMOUS | MAP_PRIVATE;
  constexpr std::uint32_t kUnwanted = MAP_LOCKED | MAP_HUGETLB;
  // the flags VMA_AREA_VSYSCALL, _VDSO and _VVAR
  constexpr std::uint32_t kOfTheKernel = 1u << 2 | 1u << 3 | 1u << 12;
  return (mapping.flags() & (kNeeded | kUnwanted)) == kNeeded && (mapping.status() & kOfTheKernel) == 0;
}

bool is_present(const criu::pagemap_entry& entry) {
  return entry.has_flags() ? (entry.flags() & kIsPresent) != 0 : !entry.in_parent();
}

Result<std::vector<criu::vma_entry>> parse_mappings(const std::string& mm_image) {
  if (word_at(mm_image, 0) != kImageMagic || word_at(mm_image, 4) != kMmMagic)
    return strange_image("a list of mappings has a wrong magic number");
  CKPT_TRY(records, records_of(mm_image, kPagemapMagicBytes));
  CKPT_TRY(mm, parse_record<criu::mm_entry>(records.front(), "mm"));
  std::vector<criu::vma_entry> mappings(mm.vmas().begin(), mm.vmas().end());
  constexpr std::uint32_t kGuard = 1u << 16;  // the flag VMA_AREA_GUARD
  std::erase_if(mappings, [](const criu::vma_entry& item) { return (item.status() & kGuard) != 0; });
  std::sort(mappings.begin(), mappings.end(),
            [](const criu::vma_entry& a, const criu::vma_entry& b) { return a.start() < b.start(); });
  std::uint64_t after = 0;
  for (const criu::vma_entry& mapping : mappings) {
    if ((mapping.start() | mapping.end()) % kPageBytes != 0 || mapping.start() < after ||
        mapping.end() <= mapping.start())
      return strange_image("a process has invalid mappings");
    after = mapping.end();
  }
  return mappings;
}

Result<Pagemap> parse_pagemap(const std::string& text, std::uint32_t process) {
  if (word_at(text, 0) != kImageMagic || word_at(text, 4) != kPagemapMagic)
    return strange_image("a pagemap has a wrong magic number");
  CKPT_TRY(records, records_of(text, kPagemapMagicBytes));
  Pagemap pagemap;
  pagemap.process = process;
  CKPT_TRY(head, parse_record<criu::pagemap_head>(records.front(), "a pagemap"));
  pagemap.pages_file = head.pages_id();
  pagemap.head = text.substr(0, kPagemapMagicBytes);
  put_record(pagemap.head, records.front());
  for (std::size_t i = 1; i < records.size(); ++i) {
    CKPT_TRY(entry, parse_record<criu::pagemap_entry>(records[i], "a pagemap"));
    if (entry.vaddr() % kPageBytes != 0 || entry.vaddr() > kMaxAddress ||
        entry.nr_pages() > kMaxAddress / kPageBytes)
      return strange_image("a pagemap has invalid page ranges");
    pagemap.entries.push_back(std::move(entry));
  }
  return pagemap;
}

Result<std::vector<Pagemap>> read_all_pagemaps(const std::string& images) {
  std::vector<Pagemap> pagemaps;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(images, error)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with(kNameBegin)) continue;
    std::uint32_t process = 0;
    if (!name.starts_with(kSharedBegin)) {
      CKPT_TRY(named, process_in(name));
      process = named;
    }
    CKPT_TRY(text, read_file(item.path().string(), kMaxPagemapBytes));
    CKPT_TRY(pagemap, parse_pagemap(text, process));
    pagemap.path = item.path().string();
    pagemaps.push_back(std::move(pagemap));
  }
  if (error) return Error::from_errno(error.value(), "Cannot read " + images);
  return pagemaps;
}

Result<std::vector<Pagemap>> read_pagemaps(const std::string& images) {
  CKPT_TRY(pagemaps, read_all_pagemaps(images));
  std::erase_if(pagemaps, [](const Pagemap& pagemap) { return pagemap.process == 0; });
  return pagemaps;
}

Result<void> mark_lazy_pages(Pagemap& pagemap, const std::vector<criu::vma_entry>& mappings) {
  std::vector<criu::pagemap_entry> marked;
  std::uint64_t after = 0;
  for (const criu::pagemap_entry& entry : pagemap.entries) {
    if (entry.vaddr() < after) return strange_image("a pagemap lists a page twice");
    after = entry.vaddr() + bytes_of_entry(entry);
    if (!is_present(entry)) {
      marked.push_back(entry);
      continue;
    }
    for (std::uint64_t at = entry.vaddr(); at < after;) {
      const auto mapping = std::upper_bound(
          mappings.begin(), mappings.end(), at,
          [](std::uint64_t address, const criu::vma_entry& item) { return address < item.end(); });
      if (mapping == mappings.end() || mapping->start() > at)
        return strange_image("a process has pages where it has no mapping");
      const std::uint64_t here = std::min<std::uint64_t>(after, mapping->end()) - at;
      criu::pagemap_entry& part = marked.emplace_back(entry);
      part.set_vaddr(at);
      part.set_compat_nr_pages(static_cast<std::uint32_t>(here / kPageBytes));
      if (entry.has_nr_pages()) part.set_nr_pages(here / kPageBytes);
      const std::uint32_t others = entry.flags() & ~kCanBeLazy;
      part.set_flags(others | kIsPresent | (can_be_lazy(*mapping) ? kCanBeLazy : 0));
      at += here;
    }
  }
  pagemap.entries = std::move(marked);
  return ok();
}

Result<void> write_pagemap(const Pagemap& pagemap) {
  std::string text = pagemap.head;
  for (const criu::pagemap_entry& entry : pagemap.entries) put_record(text, entry.SerializeAsString());
  std::ofstream file(pagemap.path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Error(ErrorCode::kIo, "Cannot write " + pagemap.path);
  return ok();
}

}  // namespace ckpt::agent::host
