// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/lazy_pages_choice.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/keeper/lazy_pages/plan.h"
#include "criu_images.pb.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kPagemapMagic = 0x56084025;
constexpr std::size_t kMaxPagemapBytes = std::size_t{256} << 20;
constexpr std::size_t kMagicBytes = 8;
using lazy_pages::kPageBytes;
using lazy_pages::MissingRange;
constexpr std::uint64_t kMaxAddress = std::uint64_t{1} << 57;
constexpr std::uint32_t kMmMagic = 0x57492820;
constexpr std::uint32_t kCanBeLazy = 1u << 1;  // PE_LAZY
constexpr std::uint32_t kIsPresent = 1u << 2;  // PE_PRESENT

constexpr std::string_view kNameBegin = "pagemap-";

struct Pagemap {
  std::string path;
  std::uint32_t process = 0;
  std::uint32_t pages_file = 0;
  std::string head;  // the magic and the first record
  std::vector<criu::pagemap_entry> entries;
};

// Neighbours in one process's memory that can be lazy.
struct Run {
  Pagemap* in = nullptr;
  std::size_t begin = 0;  // of its entries
  std::size_t end = 0;
  std::uint64_t bytes = 0;
};

std::uint64_t bytes_of_entry(const criu::pagemap_entry& entry) {
  return (entry.has_nr_pages() ? entry.nr_pages() : entry.compat_nr_pages()) * kPageBytes;
}

bool can_be_lazy(const criu::pagemap_entry& entry) {
  return (entry.flags() & kCanBeLazy) != 0;
}

Result<std::uint32_t> process_in(const std::string& name) {
  const std::string digits = name.substr(kNameBegin.size());
  std::uint32_t process = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), process);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr) != ".img" || process == 0)
    return strange_image(name + " names no process");
  return process;
}

Result<Pagemap> parse_pagemap(const std::string& text, std::uint32_t process) {
  if (word_at(text, 0) != kImageMagic || word_at(text, 4) != kPagemapMagic)
    return strange_image("a pagemap is of another kind");
  CKPT_TRY(records, records_of(text, kMagicBytes));
  Pagemap pagemap;
  pagemap.process = process;
  CKPT_TRY(head, parse_record<criu::pagemap_head>(records.front(), "a pagemap"));
  pagemap.pages_file = head.pages_id();
  pagemap.head = text.substr(0, kMagicBytes);
  put_record(pagemap.head, records.front());
  for (std::size_t i = 1; i < records.size(); ++i) {
    CKPT_TRY(entry, parse_record<criu::pagemap_entry>(records[i], "a pagemap"));
    if (entry.vaddr() % kPageBytes != 0 || entry.vaddr() > kMaxAddress ||
        entry.nr_pages() > kMaxAddress / kPageBytes)
      return strange_image("a pagemap has pages that cannot be");
    pagemap.entries.push_back(std::move(entry));
  }
  return pagemap;
}

Result<void> write_pagemap(const Pagemap& pagemap) {
  std::string text = pagemap.head;
  for (const criu::pagemap_entry& entry : pagemap.entries) put_record(text, entry.SerializeAsString());
  std::ofstream file(pagemap.path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Error(ErrorCode::kIo, "Writing " + pagemap.path);
  return ok();
}

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

Result<std::vector<Pagemap>> read_pagemaps(const std::string& images) {
  std::vector<Pagemap> pagemaps;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(images, error)) {
    const std::string name = item.path().filename().string();
    // Those of shared memory, pagemap-shmem-*, have no lazy pages.
    if (!name.starts_with(kNameBegin) || name.starts_with("pagemap-shmem-")) continue;
    CKPT_TRY(process, process_in(name));
    CKPT_TRY(text, read_file(item.path().string(), kMaxPagemapBytes));
    CKPT_TRY(pagemap, parse_pagemap(text, process));
    pagemap.path = item.path().string();
    pagemaps.push_back(std::move(pagemap));
  }
  if (error) return Error::from_errno(error.value(), "Reading " + images);
  return pagemaps;
}

// Ends of the mappings of a process, ascending.
Result<std::vector<std::uint64_t>> mapping_ends(const std::string& text) {
  if (word_at(text, 0) != kImageMagic || word_at(text, 4) != kMmMagic)
    return strange_image("a list of mappings is of another kind");
  CKPT_TRY(records, records_of(text, kMagicBytes));
  CKPT_TRY(mm, parse_record<criu::mm_entry>(records.front(), "mm"));
  std::vector<std::uint64_t> ends;
  for (const criu::vma_entry& vma : mm.vmas()) ends.push_back(vma.end());
  std::sort(ends.begin(), ends.end());
  return ends;
}

// What is lazy in a pagemap, cut where a mapping ends.
Result<void> add_missing(const Pagemap& pagemap, const std::string& mappings,
                         std::vector<MissingRange>& plan) {
  CKPT_TRY(ends, mapping_ends(mappings));
  std::uint64_t offset = 0;
  for (const criu::pagemap_entry& entry : pagemap.entries) {
    const bool present = entry.has_flags() ? (entry.flags() & kIsPresent) != 0 : !entry.in_parent();
    const std::uint64_t bytes = bytes_of_entry(entry);
    if (can_be_lazy(entry) && present) {
      for (std::uint64_t done = 0; done < bytes;) {
        const std::uint64_t address = entry.vaddr() + done;
        const auto end = std::upper_bound(ends.begin(), ends.end(), address);
        if (end == ends.end()) return strange_image("pages behind the last mapping");
        const std::uint64_t here = std::min(bytes - done, *end - address);
        plan.push_back({pagemap.process, pagemap.pages_file, address, here, offset + done});
        done += here;
      }
    }
    if (present) offset += bytes;
  }
  return ok();
}

}  // namespace

Result<PageCounts> choose_lazy_pages(const std::string& images, std::uint64_t most_eager) {
  CKPT_TRY(pagemaps, read_pagemaps(images));
  std::vector<Run> runs;
  for (Pagemap& pagemap : pagemaps) add_runs(pagemap, runs);
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.bytes < b.bytes; });
  PageCounts counts;
  for (const Run& run : runs) {
    if (counts.eager + run.bytes > most_eager) {
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
    CKPT_TRY(mappings,
             read_file(images + "/mm-" + std::to_string(pagemap.process) + ".img", kMaxPagemapBytes));
    CKPT_TRYV(add_missing(pagemap, mappings, plan));
  }
  CKPT_TRYV(lazy_pages::write_plan(images, plan));
  return counts;
}

Result<std::vector<MissingRange>> lazy_ranges(const std::string& pagemap, const std::string& mappings) {
  CKPT_TRY(parsed, parse_pagemap(pagemap, 1));
  std::vector<MissingRange> ranges;
  CKPT_TRYV(add_missing(parsed, mappings, ranges));
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
