// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/lazy_pages_choice.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/memory_index.h"
#include "agent/host_process/criu_image/pagemap.h"
#include "agent/keeper/lazy_pages/plan.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

using lazy_pages::MissingRange;

// A run of adjacent pages of one process that can be restored lazily.
struct Run {
  Pagemap* in = nullptr;
  std::size_t begin = 0;  // index of the run's first entry
  std::size_t end = 0;
  std::uint64_t bytes = 0;
};

void add_runs(Pagemap& pagemap, std::vector<Run>& runs) {
  for (std::size_t i = 0; i < pagemap.entries.size(); ++i) {
    const criu::pagemap_entry& entry = pagemap.entries[i];
    if (!can_be_lazy(entry)) continue;
    const bool goes_on =
        i > 0 && !runs.empty() && runs.back().in == &pagemap && runs.back().end == i &&
        pagemap.entries[i - 1].vaddr() + bytes_of_entry(pagemap.entries[i - 1]) == entry.vaddr();
    if (!goes_on) runs.push_back({&pagemap, i, i, 0});
    runs.back().end = i + 1;
    runs.back().bytes += bytes_of_entry(entry);
  }
}

// Adds a range of one mapping to the plan. The range is in the process's file of pages or, according to the
// index, in the memory log.
Result<void> add_range(const MissingRange& range, const std::optional<MemoryIndex>& index,
                       std::vector<MissingRange>& plan) {
  if (!index) {
    plan.push_back(range);
    return ok();
  }
  CKPT_TRY(places, index->find(range.address, range.bytes));
  for (const IndexedRange& place : places)
    plan.push_back({range.process, kMemoryLogNumber, place.address, place.bytes, place.offset});
  return ok();
}

// Adds the lazy entries of a pagemap to the plan. Each entry belongs to one mapping.
Result<void> add_missing(const Pagemap& pagemap, const std::optional<MemoryIndex>& index,
                         std::vector<MissingRange>& plan) {
  std::uint64_t offset = 0;
  for (const criu::pagemap_entry& entry : pagemap.entries) {
    if (!is_present(entry)) continue;
    const std::uint64_t bytes = bytes_of_entry(entry);
    if (can_be_lazy(entry)) {
      CKPT_TRYV(add_range({pagemap.process, pagemap.pages_file, entry.vaddr(), bytes, offset}, index, plan));
    }
    offset += bytes;
  }
  return ok();
}

}  // namespace

Result<PageCounts> choose_lazy_pages(const std::string& images, std::uint64_t max_eager_bytes) {
  CKPT_TRY(pagemaps, read_pagemaps(images));
  std::vector<Run> runs;
  for (Pagemap& pagemap : pagemaps) {
    CKPT_TRY(mm, read_file(images + "/mm-" + std::to_string(pagemap.process) + ".img", kMaxPagemapBytes));
    CKPT_TRY(mappings, parse_mappings(mm));
    CKPT_TRYV(mark_lazy_pages(pagemap, mappings));
    add_runs(pagemap, runs);
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.bytes < b.bytes; });
  PageCounts counts;
  for (const Run& run : runs) {
    if (counts.eager + run.bytes > max_eager_bytes) {
      counts.lazy += run.bytes;
      continue;
    }
    counts.eager += run.bytes;
    for (std::size_t i = run.begin; i < run.end; ++i)
      run.in->entries[i].set_flags(run.in->entries[i].flags() & ~kCanBeLazy);
  }
  std::vector<MissingRange> plan;
  for (const Pagemap& pagemap : pagemaps) {
    CKPT_TRYV(write_pagemap(pagemap));
    std::optional<MemoryIndex> index;
    if (has_memory_index(images, pagemap.pages_file)) {
      CKPT_TRY(read, MemoryIndex::read(images, pagemap.pages_file));
      CKPT_TRYV(read.write_pages(images, pagemap));
      index = std::move(read);
    }
    CKPT_TRYV(add_missing(pagemap, index, plan));
  }
  CKPT_TRYV(lazy_pages::write_plan(images, plan));
  return counts;
}

Result<std::vector<MissingRange>> lazy_ranges(const std::string& pagemap, const std::string& mm_image) {
  CKPT_TRY(parsed, parse_pagemap(pagemap, 1));
  CKPT_TRY(mappings, parse_mappings(mm_image));
  CKPT_TRYV(mark_lazy_pages(parsed, mappings));
  std::vector<MissingRange> ranges;
  CKPT_TRYV(add_missing(parsed, std::nullopt, ranges));
  return ranges;
}

std::string lazy_pages_pid_file(const std::string& images) {
  return images + "/lazy-pages.pid";
}

std::vector<std::string> lazy_pages_command(const std::string& images) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program =
      unknown ? "gpumigrate-lazy-pages" : (self.parent_path() / "gpumigrate-lazy-pages").string();
  return {program, images, lazy_pages_pid_file(images)};
}

}  // namespace ckpt::agent::host
