// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/early_pages.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "agent/host_process/criu_image/left_out.h"
#include "agent/host_process/early_pages/held_pages.h"
#include "agent/host_process/early_pages/unseen_writes.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint64_t kMaxReadAtOnce = std::uint64_t{64} << 20;
// The share of memory that the log reserves for pages that are read a second time: one part in kReadAgain.
// Reserved memory that stays unused is freed in the pause.
constexpr std::uint64_t kReadAgain = 32;
constexpr std::uint64_t kGrowthStep = std::uint64_t{2} << 20;  // the growth of the log that one report covers
constexpr std::size_t kMaxStatus = std::size_t{1} << 16;
constexpr std::uint64_t kComparedPages = 512;   // number of pages compared in a move, divided among its
                                                // processes in proportion to their held memory
constexpr std::uint64_t kMinComparedPages = 8;  // least number of pages compared in each process

std::uint64_t bytes_of(const std::vector<MemoryRange>& ranges) {
  std::uint64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes();
  return bytes;
}

// Removes from the front of `ranges`, beginning at index `next`, as much as one read covers. Returns the
// removed part.
std::vector<MemoryRange> take_some(std::vector<MemoryRange>& ranges, std::size_t& next) {
  std::vector<MemoryRange> some;
  for (std::uint64_t bytes = 0; next < ranges.size() && bytes < kMaxReadAtOnce;) {
    MemoryRange& range = ranges[next];
    const std::uint64_t here = std::min(range.bytes(), kMaxReadAtOnce - bytes);
    some.push_back({range.begin, range.begin + here});
    bytes += here;
    range.begin += here;
    if (range.bytes() == 0) ++next;
  }
  return some;
}

std::vector<IndexedRange> indexed(const std::vector<MemoryRange>& ranges) {
  std::vector<IndexedRange> made;
  made.reserve(ranges.size());
  for (const MemoryRange& range : ranges) made.push_back({range.begin, range.bytes(), 0});
  return made;
}

// Returns the ranges of an index by address, with adjacent ranges joined.
std::vector<MemoryRange> ranges_of(const PageIndex& index) {
  std::vector<MemoryRange> made;
  for (const IndexedRange& range : index.ranges()) {
    if (!made.empty() && made.back().end == range.address) {
      made.back().end = range.address + range.bytes;
    } else {
      made.push_back({range.address, range.address + range.bytes});
    }
  }
  return made;
}

// Returns the id that a process has in its innermost PID namespace.
Result<std::uint32_t> inner_id(pid_t pid) {
  CKPT_TRY(status, read_file(proc_path(pid, "/status"), kMaxStatus));
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string::npos)
    return Error(ErrorCode::kNotSupported, "The kernel does not report PID namespaces");
  std::istringstream ids(status.substr(at + 7, status.find('\n', at + 1) - at - 7));
  std::uint32_t id = 0;
  while (ids >> id) {
  }
  return id;
}

}  // namespace

Result<std::unique_ptr<EarlyPages>> EarlyPages::create(pid_t root, std::uint64_t limit, std::uint64_t more,
                                                       std::uint64_t least) {
  CKPT_TRY(estimate, estimate_dump(root));
  std::vector<std::unique_ptr<Followed>> processes;
  std::uint64_t bytes = 0;
  Error none(ErrorCode::kNotFound, "No process of the job has memory whose writes can be tracked");
  for (const DumpEstimate::Process& process : estimate.processes) {
    if (process.bytes < least || bytes + process.bytes + more > limit || may_be_written_unseen(process.pid))
      continue;
    auto watch = MemoryWatch::create(process.pid);
    if (!watch) {
      spdlog::warn("memory of a process is not copied ahead: pid {} reason {}", process.pid,
                   watch.error().to_string());
      none = watch.error();
      continue;
    }
    processes.push_back(std::make_unique<Followed>(*std::move(watch)));
    bytes += process.bytes;
  }
  if (processes.empty()) return none;
  CKPT_TRY(log, MemoryLog::create(limit, bytes + bytes / kReadAgain + more));
  return std::unique_ptr<EarlyPages>(new EarlyPages(root, std::move(log), std::move(processes), bytes));
}

// Appends pages of a process to the log. Returns false if the pages were removed while the function read
// them.
Result<bool> EarlyPages::append(pid_t pid, PageIndex& index, const std::vector<MemoryRange>& ranges,
                                bool stopped) {
  const std::uint64_t bytes = bytes_of(ranges);
  CKPT_TRY(room, log_->reserve(bytes));
  auto read = read_memory(pid, ranges, room.data(), stopped);
  if (!read && !stopped && read.error().code() == ErrorCode::kRefused) return false;
  CKPT_TRYV(std::move(read));
  std::uint64_t offset = log_->append(bytes);
  for (const MemoryRange& range : ranges) {
    index.put(range, offset);
    offset += range.bytes();
  }
  return true;
}

Result<void> EarlyPages::read_mapping(Followed& process, const MemoryRange& mapping, const Growth& grew,
                                      Round& round) {
  CKPT_TRY(follow, process.watch.follow(mapping));
  for (const MemoryRange& part : follow.fresh) process.index.forget(part);
  if (!follow.is_watched) {
    process.index.forget(mapping);
    return ok();
  }
  for (std::uint64_t at = mapping.begin; at < mapping.end && !round.is_cut;) {
    std::vector<MemoryRange> written;
    const auto next = process.watch.collect_written(mapping, at, written);
    // The failed scan may have read some of these pages and marked them as not written.
    if (!next) process.index.forget({at, mapping.end});
    CKPT_TRY(went_to, next);
    at = went_to;
    for (const MemoryRange& range : written) process.index.forget(range);
    for (std::size_t first = 0; first < written.size() && !round.is_cut;) {
      const std::vector<MemoryRange> some = take_some(written, first);
      if (log_->limit() - log_->filled() < bytes_of(some)) {
        round.is_cut = true;
        break;
      }
      CKPT_TRY(was_there, append(process.watch.pid(), process.index, some, false));
      if (was_there) round.read_bytes += bytes_of(some);
      if (log_->filled() - told_bytes_ >= kGrowthStep) grew(told_bytes_ = log_->filled());
      round.is_cut = round.is_cut || is_cut_.load();
    }
    round.is_cut = round.is_cut || is_cut_.load();
  }
  return ok();
}

Result<void> EarlyPages::read_process(Followed& process, const Growth& grew, Round& round) {
  CKPT_TRY(mappings, process.watch.mappings());
  process.index.retain_only(mappings);
  for (const MemoryRange& mapping : mappings) {
    if (round.is_cut) return ok();
    CKPT_TRYV(read_mapping(process, mapping, grew, round));
  }
  return ok();
}

Result<EarlyPages::Round> EarlyPages::run_round(const Growth& grew) {
  Round round;
  round.is_cut = is_cut_.load();
  for (const auto& process : processes_) {
    if (round.is_cut) break;
    if (may_be_written_unseen(process->watch.pid())) {
      process->index.retain_only({});
      continue;
    }
    auto read = read_process(*process, grew, round);
    if (read) continue;
    process->index.retain_only({});
    if (read.error().code() != ErrorCode::kNotFound) return std::move(read).error();
  }
  grew(told_bytes_ = log_->filled());  // the growth is reported here and not after each mapping, because a
                                       // program may have tens of thousands of mappings
  return round;
}

std::uint64_t EarlyPages::held_bytes() const noexcept {
  const bool is_known = std::none_of(processes_.begin(), processes_.end(),
                                     [](const auto& process) { return process->is_distrusted; });
  return is_known ? std::min(log_->filled(), followed_bytes_) : 0;
}

void EarlyPages::distrust(pid_t pid) {
  for (const auto& process : processes_)
    if (process->watch.pid() == pid) process->is_distrusted = true;
}

Result<void> EarlyPages::begin_dump(const std::string& folder, const DumpEstimate& estimate) {
  for (const DumpEstimate::Process& dumped : estimate.processes) {
    const auto is_it = [&dumped](const auto& process) { return process->watch.pid() == dumped.pid; };
    if (std::ranges::none_of(processes_, is_it)) continue;
    // CRIU moves pages from a pipe to a file without a copy. A symbolic link to /dev/null discards the pages,
    // also without a copy.
    const std::string path = folder + "/" + pages_name(dumped.position);
    if (::symlink("/dev/null", path.c_str()) != 0) return Error::from_errno("Cannot create " + path);
    thrown_away_.insert(static_cast<std::uint32_t>(dumped.position + 1));
  }
  return ok();
}

// Removes pages from the index that are not proven to be unchanged since they were read. Returns the pages
// that CRIU leaves out. These are the pages of all watched mappings, including mappings with another watch.
Result<std::vector<MemoryRange>> EarlyPages::store_proven(MemoryWatch& watch, PageIndex& index,
                                                          bool is_distrusted) {
  CKPT_TRY(mappings, watch.mappings());
  PresentPages pages;
  std::vector<MemoryRange> own;
  for (const MemoryRange& mapping : mappings) {
    CKPT_TRY(is_watched, watch.is_watched(mapping));
    if (!is_watched) continue;
    CKPT_TRY(parts, watch.own(mapping));
    own.insert(own.end(), parts.begin(), parts.end());
    CKPT_TRYV(watch.find_present(mapping, pages));
  }
  if (is_distrusted || may_be_written_unseen(watch.pid())) own.clear();
  index.retain_only(own);
  for (const MemoryRange& range : pages.written) index.forget(range);
  return pages.present;
}

Result<EarlyPages::Proof> EarlyPages::prove(pid_t pid) {
  Followed* process = followed(pid);
  MemoryWatch onlooker = MemoryWatch::onlooker(pid);
  PageIndex nothing;
  PageIndex& index = process != nullptr ? process->index : nothing;
  Proof proof;
  CKPT_TRY(left_out, store_proven(process != nullptr ? process->watch : onlooker, index,
                                  process != nullptr && process->is_distrusted));
  index.retain_only(left_out);
  proof.left_out = std::move(left_out);
  proof.held = index.ranges();
  return proof;
}

// Checks whether CRIU leaves out pages of the process. Memory that a process shares with a followed process
// is watched, too. Memory that another program watches also counts.
Result<bool> EarlyPages::has_left_out_pages(pid_t pid) const {
  MemoryWatch onlooker = MemoryWatch::onlooker(pid);
  const auto mappings = onlooker.mappings();
  if (!mappings && mappings.error().code() == ErrorCode::kNotFound) return false;  // the process has exited
  CKPT_TRYV(mappings);
  return onlooker.has_watched_memory();
}

// Compares a sample of the pages with the log. The total sample of all processes is limited, because the
// comparison runs in the pause.
Result<void> EarlyPages::compare(pid_t pid, const PageIndex& index) {
  const auto held = index.ranges();
  const bool all = std::getenv("GPUMIGRATE_COMPARE_HOST_MEMORY") != nullptr;
  const std::uint64_t share = indexed_bytes_ > 0 ? kComparedPages * index.bytes() / indexed_bytes_ : 0;
  auto same = all ? compare_pages(pid, held, *log_)
                  : compare_some_pages(pid, held, *log_, std::max(share, kMinComparedPages), random_);
  if (!same)
    spdlog::error("memory that was copied ahead of the pause differs from the process's memory: {}",
                  same.error().to_string());
  return same;
}

EarlyPages::Followed* EarlyPages::followed(pid_t pid) {
  for (const auto& process : processes_)
    if (process->watch.pid() == pid) return process.get();
  return nullptr;
}

Result<void> EarlyPages::read_missing(pid_t pid, PageIndex& index, const std::vector<MemoryRange>& wanted,
                                      const Growth& grew) {
  std::vector<MemoryRange> missing = index.missing(wanted);
  for (std::size_t next = 0; next < missing.size();) {
    CKPT_TRYV(append(pid, index, take_some(missing, next), true));
    grew(log_->filled());
  }
  return ok();
}

// Finishes one process of CRIU's images. The process is followed, has pages that CRIU left out, or has exited
// since and left its place in the images.
Result<void> EarlyPages::finish_process(pid_t pid, const DumpedPages& dumped, const std::string& folder,
                                        const Growth& grew) {
  PageIndex wanted;
  for (const IndexedRange& range : dumped.ranges)
    wanted.put({range.address, range.address + range.bytes}, range.offset);
  Followed* process = followed(pid);
  MemoryWatch onlooker = MemoryWatch::onlooker(pid);
  PageIndex nothing;
  PageIndex* index = process != nullptr ? &process->index : &nothing;
  CKPT_TRY(present, store_proven(process != nullptr ? process->watch : onlooker, *index,
                                 process != nullptr && process->is_distrusted));
  const std::vector<MemoryRange> more = wanted.missing(present);
  CKPT_TRYV(add_left_out_pages(folder, dumped.process, indexed(more)));
  for (const MemoryRange& range : more) wanted.put(range, 0);
  const std::vector<MemoryRange> all = ranges_of(wanted);
  index->retain_only(all);
  const std::uint64_t held = index->bytes();
  CKPT_TRYV(compare(pid, *index));
  CKPT_TRYV(read_missing(pid, *index, all, grew));
  spdlog::info("memory copied ahead: pid {} held_bytes {} read_at_last_bytes {} left_out_bytes {}", pid, held,
               index->bytes() - held, bytes_of(more));
  return write_memory_index(folder, dumped.pages_file, index->ranges());
}

Result<PlacedPages> EarlyPages::finish(const std::string& folder, const Growth& grew) {
  for (const std::uint32_t number : thrown_away_) ::unlink((folder + "/" + pages_name(number - 1)).c_str());
  std::map<std::uint32_t, pid_t> processes;  // processes by the ids in their own PID namespaces
  CKPT_TRY(list, processes_of(root_));
  for (const pid_t pid : list) {
    CKPT_TRY(id, inner_id(pid));
    processes[id] = pid;
  }
  CKPT_TRY(all, dumped_pages(folder));
  indexed_bytes_ = 0;
  for (const auto& process : processes_) indexed_bytes_ += process->index.bytes();
  for (const DumpedPages& dumped : all) {
    const auto process = processes.find(dumped.process);
    const bool is_known = process != processes.end();
    const bool is_thrown_away = thrown_away_.contains(dumped.pages_file);
    if (!is_thrown_away && !is_known) continue;
    if (!is_thrown_away && followed(process->second) == nullptr) {
      CKPT_TRY(has_more, has_left_out_pages(process->second));
      if (!has_more) continue;
    }
    if (!is_known)
      return Error(ErrorCode::kAborted,
                   "The job's processes changed while they were dumped, and CRIU stored shared memory where "
                   "pages of one process were expected: try again");
    // If CRIU used a number for the process other than the expected one, the file contains the pages that
    // CRIU found.
    if (!is_thrown_away) ::unlink((folder + "/" + pages_name(dumped.pages_file - 1)).c_str());
    CKPT_TRYV(finish_process(process->second, dumped, folder, grew));
  }
  PlacedPages pages;
  CKPT_TRY(file, log_->duplicate_file());
  pages.file = std::move(file);
  pages.name = kMemoryLog;
  pages.bytes = log_->filled();
  return pages;
}

}  // namespace ckpt::agent::host
