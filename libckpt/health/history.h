// SPDX-License-Identifier: Apache-2.0
// The history of Xids, each with its GPU and job. An application's fault that comes back on a GPU under
// different jobs points to the GPU. One that follows its job from GPU to GPU points to the application.
// Bounded: the newest kMaxOccurrences. Threads: a value. Errors: none.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "libckpt/health/table.h"

namespace ckpt::health {

inline constexpr std::size_t kMaxOccurrences = 1024;

struct Occurrence {
  std::int64_t time_ms = 0;
  std::string gpu;  // its UUID
  std::uint32_t xid = 0;
  std::uint64_t job = 0;  // 0: not known; counts as one job
};

struct RepeatRule {
  std::uint32_t jobs = 3;  // this many different jobs on one GPU
  std::int64_t within_ms = 24LL * 3600 * 1000;
};

class History {
 public:
  History() = default;
  void add(Occurrence occurrence);
  [[nodiscard]] const std::deque<Occurrence>& all() const noexcept { return all_; }

  // Why a GPU is suspect by repetition of this Xid, which a row of `table` leaves to the job; empty: it is
  // not. Of driver faults (driver_fw) every occurrence counts, of others different jobs; a job that had the
  // same Xid on another GPU, too, counts for none.
  [[nodiscard]] std::string suspicion(const std::string& gpu, const XidRow& row, std::int64_t now_ms,
                                      const RepeatRule& rule) const;

 private:
  std::deque<Occurrence> all_;  // oldest first
};

}  // namespace ckpt::health
