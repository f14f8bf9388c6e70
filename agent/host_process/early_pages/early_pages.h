// SPDX-License-Identifier: Apache-2.0
// The memory of a job's processes, read while they run and sent ahead of the pause. Pages that were written
// since are read again. This happens in rounds, then again after CRIU has dumped and stopped the processes.
// If criu_library() is preloaded into CRIU, CRIU leaves out the pages of watched mappings. The other pages of
// these processes that CRIU writes are discarded.
//
//   CKPT_TRY(pages, EarlyPages::create(root, most));
//   pages->run_round(grew); ...                     // while the job runs
//   CKPT_TRYV(pages->begin_dump(folder, estimate)); // the job is paused, its processes may run
//   ... CRIU dumps; the processes are stopped ...
//   CKPT_TRY(placed, pages->finish(folder, grew));  // the log, and each process's index (memory_index.h)
//
// A page counts as held only if it is proven that nothing wrote it: its mapping has been watched since the
// page was read (memory_watch.h). All other pages are read at the end. Some writes into a process are not
// visible to the kernel as the process's own writes. They come from O_DIRECT, io_uring, asynchronous I/O and
// pinned pages. All memory of such a process is read at the end. finish() compares a sample of the held pages
// with the process, and fails with kCorrupt if a page differs. Each move uses another sample. With
// $GPUMIGRATE_COMPARE_HOST_MEMORY set, the sample contains all pages.
// Threads: one caller at a time, which blocks (use offload()). Any thread may call cut() and held_bytes().
// Errors: kNotFound if no process can be followed, or the reason why the last process cannot. kOutOfMemory if
// the log is full. kIo or errno. After an error of finish() nothing is lost, because the processes still have
// their memory.
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

// The minimum memory of a followed process. For less memory, a dump is as fast as a check of the memory.
inline constexpr std::uint64_t kMinFollowedBytes = std::uint64_t{16} << 20;

class EarlyPages {
 public:
  // A function that receives the current number of bytes in the log.
  using Growth = std::function<void(std::uint64_t filled)>;
  struct Round {
    std::uint64_t read_bytes = 0;
    bool is_cut = false;  // true if the round ended early: cut() was called or the log was full
  };

  // Creates the object for the tree under `root`, and stops each followed process briefly. A process is
  // followed if it has at least `least` bytes. `limit` is the maximum length of the log. `more` is the number
  // of bytes that come in addition to the pages.
  static Result<std::unique_ptr<EarlyPages>> create(pid_t root, std::uint64_t limit, std::uint64_t more,
                                                    std::uint64_t least = kMinFollowedBytes);
  EarlyPages(const EarlyPages&) = delete;
  EarlyPages& operator=(const EarlyPages&) = delete;

  [[nodiscard]] const MemoryLog& log() const noexcept { return *log_; }
  // Returns the memory of the followed processes in bytes, as measured by create().
  [[nodiscard]] std::uint64_t followed_bytes() const noexcept { return followed_bytes_; }
  // Returns the number of bytes for which the dump needs no memory, according to the last round. The result
  // is 0 if a process must be read again.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept;
  // Returns the library for DumpOptions::preload (left_out_pages.h). An empty string means that CRIU reads
  // all pages.
  [[nodiscard]] const std::string& criu_library() const noexcept { return criu_library_; }

  Result<Round> run_round(const Growth& grew);
  // Makes the current round stop soon, and prevents further rounds.
  void cut() noexcept { is_cut_.store(true); }

  // Marks a process into which a device may have written. All of its memory is read again after the dump.
  void distrust(pid_t pid);

  Result<void> begin_dump(const std::string& folder, const DumpEstimate& estimate);
  Result<PlacedPages> finish(const std::string& folder, const Growth& grew);

  // Facts that finish() obtains from a stopped process without CRIU's images.
  struct Proof {
    std::vector<IndexedRange> held;  // ranges of the log that equal the process's memory
    std::vector<MemoryRange>
        left_out;  // pages that CRIU leaves out, because a watch of this object or of another owner covers
                   // their mappings
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
  Result<std::vector<MemoryRange>> store_proven(MemoryWatch& watch, PageIndex& index, bool is_distrusted);
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
  std::uint64_t told_bytes_ = 0;         // number of the log's bytes that the rounds have already reported
  std::set<std::uint32_t> thrown_away_;  // numbers of CRIU's files of pages that are discarded
  std::uint64_t indexed_bytes_ = 0;      // number of bytes of all processes in the log, before finish()
                                         // proves them
  std::mt19937_64 random_{std::random_device{}()};
  std::atomic<bool> is_cut_{false};
};

}  // namespace ckpt::agent::host
