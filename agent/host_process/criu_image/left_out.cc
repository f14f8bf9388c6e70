// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/left_out.h"

#include <algorithm>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/pagemap.h"
#include "agent/keeper/lazy_pages/plan.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

using lazy_pages::kPageBytes;

criu::pagemap_entry entry_of(std::uint64_t begin, std::uint64_t end, bool lazy) {
  const std::uint64_t pages = (end - begin) / kPageBytes;
  criu::pagemap_entry entry;
  entry.set_vaddr(begin);
  entry.set_compat_nr_pages(static_cast<std::uint32_t>(pages));  // CRIU before 4.2 reads this field
  entry.set_nr_pages(pages);
  entry.set_flags(kIsPresent | (lazy ? kCanBeLazy : 0));
  return entry;
}

Result<std::vector<criu::pagemap_entry>> entries_of(const std::vector<IndexedRange>& pages,
                                                    const std::vector<criu::vma_entry>& mappings) {
  std::vector<criu::pagemap_entry> entries;
  auto mapping = mappings.begin();
  for (const IndexedRange& range : pages) {
    for (std::uint64_t at = range.address; at < range.address + range.bytes;) {
      while (mapping != mappings.end() && mapping->end() <= at) ++mapping;
      if (mapping == mappings.end() || mapping->start() > at)
        return strange_image("a process has pages where it has no mapping");
      const std::uint64_t end = std::min<std::uint64_t>(range.address + range.bytes, mapping->end());
      entries.push_back(entry_of(at, end, can_be_lazy(*mapping)));
      at = end;
    }
  }
  return entries;
}

}  // namespace

Result<void> add_left_out_pages(const std::string& images, std::uint32_t process,
                                const std::vector<IndexedRange>& pages) {
  if (pages.empty()) return ok();
  const std::string name = std::to_string(process) + ".img";
  CKPT_TRY(mm, read_file(images + "/mm-" + name, kMaxPagemapBytes));
  CKPT_TRY(mappings, parse_mappings(mm));
  CKPT_TRY(made, entries_of(pages, mappings));
  CKPT_TRY(text, read_file(images + "/pagemap-" + name, kMaxPagemapBytes));
  CKPT_TRY(pagemap, parse_pagemap(text, process));
  pagemap.path = images + "/pagemap-" + name;
  const auto middle = static_cast<std::ptrdiff_t>(pagemap.entries.size());
  std::move(made.begin(), made.end(), std::back_inserter(pagemap.entries));
  std::inplace_merge(
      pagemap.entries.begin(), pagemap.entries.begin() + middle, pagemap.entries.end(),
      [](const criu::pagemap_entry& a, const criu::pagemap_entry& b) { return a.vaddr() < b.vaddr(); });
  for (std::size_t i = 1; i < pagemap.entries.size(); ++i) {
    const criu::pagemap_entry& before = pagemap.entries[i - 1];
    if (before.vaddr() + bytes_of_entry(before) > pagemap.entries[i].vaddr())
      return strange_image("a pagemap lists a page twice");
  }
  return write_pagemap(pagemap);
}

}  // namespace ckpt::agent::host
