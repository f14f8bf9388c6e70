// SPDX-License-Identifier: Apache-2.0
// Brings the missing pages of one process: those for which it waits come at once, the others piece by piece.
// By userfaultfd(2) the kernel reports what the process touches, moves, discards and forks. It refuses every
// copy (EAGAIN) while it has reported a change that was not read yet.
// Threads: one. Ownership: the userfaultfd; memory behind MissingMemory outlives it. Errors: kIo, errno: then
// the process must not go on.
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
  // True if nothing is missing, or the process has ended.
  [[nodiscard]] bool is_done() const { return has_ended_ || (missing_.is_empty() && waiting_.empty()); }
  // True if some pages could not be brought yet.
  [[nodiscard]] bool is_behind() const { return !waiting_.empty() || is_stalled_; }

  // Reads all events of the kernel. Children that the process has forked come into `forked`.
  Result<void> read_events(std::vector<ProcessPages>& forked);
  // Brings one piece that the process has not asked for.
  Result<void> bring_some();
  // Brings the pages that a thread waits for and that a change has put off.
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
  std::vector<std::uint64_t> waiting_;       // pages that a thread waits for
  std::uint64_t cursor_ = 0;                 // where bring_some() goes on
  std::map<std::uint64_t, Nanos> unmapped_;  // pages that seem to have no mapping, and since when
  bool is_stalled_ = false;                  // bring_some() could bring nothing
  bool has_ended_ = false;
};

}  // namespace ckpt::lazy_pages
