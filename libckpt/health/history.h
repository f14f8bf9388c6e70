// SPDX-License-Identifier: Apache-2.0
// The history of Xids, each with its GPU and job. An application fault that recurs on a GPU under different
// jobs indicates a faulty GPU. A fault that recurs with one job on several GPUs indicates a faulty
// application. The history has at most the newest kMaxOccurrences.
// Threads: a plain value. Errors: none.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "libckpt/health/table.h"

namespace ckpt::health {

inline constexpr std::size_t kMaxOccurrences = 1024;

struct Occurrence {
  std::int64_t time_ms = 0;
  std::string gpu;  // the GPU's UUID
  std::uint32_t xid = 0;
  std::uint64_t job = 0;  // the id of the job; 0 if the job is not known; all unknown jobs count as one job
};

struct RepeatRule {
  std::uint32_t jobs = 3;  // the number of different jobs on one GPU that makes the GPU suspect
  std::int64_t within_ms = 24LL * 3600 * 1000;
};

class History {
 public:
  History() = default;
  void add(Occurrence occurrence);
  [[nodiscard]] const std::deque<Occurrence>& all() const noexcept { return all_; }

  // Returns the reason why a GPU is suspect because of repeated occurrences of this Xid, which the table
  // attributes to the job. Returns an empty string if the GPU is not suspect. For driver faults (driver_fw)
  // every occurrence counts, for others only different jobs. A job that had the same Xid on a different GPU,
  // too, does not count.
  [[nodiscard]] std::string suspicion(const std::string& gpu, const XidRow& row, std::int64_t now_ms,
                                      const RepeatRule& rule) const;

 private:
  std::deque<Occurrence> all_;  // the occurrences, oldest first
};

}  // namespace ckpt::health
