// SPDX-License-Identifier: Apache-2.0
// Provides the missing pages of one process. Pages for which the process waits come at once, and the other
// pages come piece by piece. Through userfaultfd(2) the kernel reports what the process accesses, moves,
// discards and forks. The kernel refuses every copy (EAGAIN) while a reported change is unread.
// Threads: one. Ownership: the userfaultfd. The memory behind MissingMemory outlives this object. Errors:
// kIo, errno. After an error the process must not continue.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "agent/keeper/lazy_pages/missing_memory.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::lazy_pages {

class ProcessPages {
 public:
  ProcessPages(UniqueFd faults, MissingMemory missing)
      : faults_(std::move(faults)), missing_(std::move(missing)) {}

  [[nodiscard]] int fd() const { return faults_.get(); }
  // Checks whether no page is missing, or the process has exited.
  [[nodiscard]] bool is_done() const { return has_ended_ || (missing_.is_empty() && waiting_.empty()); }
  // Checks whether some pages could not be copied yet.
  [[nodiscard]] bool is_behind() const { return !waiting_.empty() || is_stalled_; }

  // Reads all events of the kernel. Children that the process has forked are added to `forked`.
  Result<void> read_events(std::vector<ProcessPages>& forked);
  // Copies one piece that the process has not requested.
  Result<void> bring_some();
  // Copies the pages for which a thread waits and that a change has delayed.
  Result<void> bring_waiting();

 private:
  enum class Outcome { kDone, kLater, kEnded, kNotOneMapping };
  Result<void> bring(std::uint64_t address);
  Result<Outcome> copy(MissingMemory::Piece piece);
  Result<Outcome> try_copy(const MissingMemory::Piece& piece);
  Result<Outcome> zero(std::uint64_t address);
  Result<Outcome> settle(const MissingMemory::Piece& piece, int error);
  void wake(std::uint64_t address) const;

  UniqueFd faults_;
  MissingMemory missing_;
  std::vector<std::uint64_t> waiting_;       // addresses of pages for which a thread waits
  std::uint64_t cursor_ = 0;                 // address at which bring_some() continues
  std::map<std::uint64_t, Nanos> unmapped_;  // pages that seem to have no mapping, with the time since then
  bool is_stalled_ = false;                  // true if bring_some() could not copy a page
  bool has_ended_ = false;
};

}  // namespace ckpt::lazy_pages
