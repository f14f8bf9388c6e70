// SPDX-License-Identifier: Apache-2.0
// When a parked job that could not be resumed is tried again: each time after a longer while, and a few times only.
// Pure.
// Threads: one. Errors: none.
#pragma once

#include <cstdint>
#include <map>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class ResumeBackoff {
 public:
  static constexpr unsigned kMaxFailures = 5;

  // Returns true if the job may be tried now: it has rested, and its last failure is long enough ago.
  [[nodiscard]] bool is_ready(const Job& job, std::int64_t now_ms, std::int64_t steady_ms) const;
  void note_success(JobId job) { failures_.erase(job); }
  // Returns true if it was the last time, and forgets the job. `is_parked`: it still is.
  bool note_failure(JobId job, bool is_parked, std::int64_t steady_ms);

 private:
  struct Failures {
    unsigned count = 0;
    std::int64_t until_ms = 0;  // of a clock that is never set
  };
  std::map<JobId, Failures> failures_;
};

// Returns true if the job rests and goes on by itself once a GPU has the memory.
[[nodiscard]] bool resumes_by_itself(const Job& job);

}  // namespace ckpt::coordinator
