// SPDX-License-Identifier: Apache-2.0
// The memory of a job's processes, read while they run and sent ahead of the pause. Pages that were written
// since are read again: in rounds, then once more when CRIU has dumped and stopped the processes. CRIU leaves
// the pages of watched mappings out where criu_library() is preloaded into it. What it writes of the other
// pages of these processes is thrown away.
//
//   CKPT_TRY(pages, EarlyPages::create(root, most));
//   pages->run_round(grew); ...                     // while the job runs
//   CKPT_TRYV(pages->begin_dump(folder, estimate)); // the job is paused, its processes may run
//   ... CRIU dumps; the processes are stopped ...
//   CKPT_TRY(placed, pages->finish(folder, grew));  // the log, and each process's index (memory_index.h)
//
// A page counts as held only if it is proven that nobody wrote it: its mapping has been watched since it was
// read (memory_watch.h). All else is read at the end. Something may write into a process that the kernel does
// not see as its writes: O_DIRECT, io_uring, asynchronous I/O, pinned pages. All of such a process is read at
// the end. finish() compares a sample of the pages that count as held with the process, and fails with
// kCorrupt if one differs. Each move has another sample; with $GPUMIGRATE_COMPARE_HOST_MEMORY set it is all
// of them.
// Threads: one caller at a time, which blocks (offload()); cut() and held_bytes() from any. Errors:
// kNotFound, no process can be followed, or why the last one cannot; kOutOfMemory, the log is full; kIo,
// errno. After an error of finish() nothing was lost: the processes have their memory still.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agent/host_process/early_pages/left_out_pages.h"
#include "agent/host_process/early_pages/memory_watch.h"
#include "agent/host_process/early_pages/page_index.h"
#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_log.h"
#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// The least memory of a followed process: a dump of less is as fast as a look at it.
inline constexpr std::uint64_t kMinFollowedBytes = std::uint64_t{16} << 20;

class EarlyPages {
 public:
  // Receives the number of bytes that the log has.
  using Growth = std::function<void(std::uint64_t filled)>;
  struct Round {
    std::uint64_t read_bytes = 0;
    bool is_cut = false;  // by cut(), or since the log is full
  };

  // Stops each process that is followed, those of `least` bytes and more, for a moment. `most`: how long the
  // log may become; `more`: bytes that come beside the pages.
  static Result<std::unique_ptr<EarlyPages>> create(pid_t root, std::uint64_t most, std::uint64_t more,
                                                    std::uint64_t least = kMinFollowedBytes);
  EarlyPages(const EarlyPages&) = delete;
  EarlyPages& operator=(const EarlyPages&) = delete;

  [[nodiscard]] const MemoryLog& log() const noexcept { return *log_; }
  // The memory of the followed processes in bytes, as it was at the beginning.
  [[nodiscard]] std::uint64_t followed_bytes() const noexcept { return followed_bytes_; }
  // The bytes for which the dump needs no memory, by the last round: 0 if a process is to be read again.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept;
  // Returns the library for DumpOptions::preload (left_out_pages.h). Empty: CRIU reads all pages.
  [[nodiscard]] const std::string& criu_library() const noexcept { return criu_library_; }

  Result<Round> run_round(const Growth& grew);
  // Ends the round under way soon; no other begins.
  void cut() noexcept { is_cut_.store(true); }

  // True if a device may have written into this process: all of it is read at the end.
  void distrust(pid_t pid);

  Result<void> begin_dump(const std::string& folder, const DumpEstimate& estimate);
  Result<PlacedPages> finish(const std::string& folder, const Growth& grew);

  // Facts that finish() has of a stopped process without CRIU's images.
  struct Proof {
    std::vector<IndexedRange> held;  // in the log as the process has them
    std::vector<MemoryRange>
        left_out;  // pages that CRIU leaves out: of mappings that are watched, by this or another one
  };
  Result<Proof> prove(pid_t pid);

 private:
  struct Followed {
    explicit Followed(MemoryWatch made) : watch(std::move(made)) {}
    MemoryWatch watch;
    PageIndex index;
    bool is_distrusted = false;
  };

  EarlyPages(pid_t root, std::unique_ptr<MemoryLog> log, std::vector<std::unique_ptr<Followed>> processes,
             std::uint64_t followed_bytes)
      : root_(root),
        log_(std::move(log)),
        processes_(std::move(processes)),
        followed_bytes_(followed_bytes) {}
  Result<void> read_process(Followed& process, const Growth& grew, Round& round);
  Result<void> read_mapping(Followed& process, const MemoryRange& mapping, const Growth& grew, Round& round);
  Result<bool> append(pid_t pid, PageIndex& index, const std::vector<MemoryRange>& ranges, bool stopped);
  Result<std::vector<MemoryRange>> keep_proven(MemoryWatch& watch, PageIndex& index, bool is_distrusted);
  Followed* followed(pid_t pid);
  [[nodiscard]] Result<bool> has_left_out_pages(pid_t pid) const;
  [[nodiscard]] Result<void> compare(pid_t pid, const PageIndex& index);
  Result<void> finish_process(pid_t pid, const DumpedPages& dumped, const std::string& folder,
                              const Growth& grew);
  Result<void> read_missing(pid_t pid, PageIndex& index, const std::vector<MemoryRange>& wanted,
                            const Growth& grew);

  const pid_t root_;
  const std::string criu_library_ = left_out_pages_library();
  std::unique_ptr<MemoryLog> log_;
  std::vector<std::unique_ptr<Followed>> processes_;
  std::uint64_t followed_bytes_;
  std::uint64_t told_bytes_ = 0;         // of the log, in the rounds
  std::set<std::uint32_t> thrown_away_;  // CRIU's files of pages, by number
  std::uint64_t indexed_bytes_ = 0;      // of all processes, before finish() proves them
  std::mt19937_64 random_{std::random_device{}()};
  std::atomic<bool> is_cut_{false};
};

}  // namespace ckpt::agent::host
