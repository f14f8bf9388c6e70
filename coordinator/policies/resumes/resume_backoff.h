// SPDX-License-Identifier: Apache-2.0
// Determines when a parked job that could not be resumed is tried again. The delays increase up to a limit,
// and the number of attempts is limited. Pure.
// Threads: one. Errors: none.
#pragma once

#include <cstdint>
#include <map>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class ResumeBackoff {
 public:
  static constexpr unsigned kMaxFailures = 5;

  // Returns true if the job may be resumed now. It must have been parked for the minimum time, and the delay
  // after its last failure must be over.
  [[nodiscard]] bool is_ready(const Job& job, std::int64_t now_ms, std::int64_t steady_ms) const;
  void note_success(JobId job) { failures_.erase(job); }
  // Records a failed attempt. Returns true, and removes the job's failures, if this was the last attempt.
  // `is_parked` means that the job is still parked.
  bool note_failure(JobId job, bool is_parked, std::int64_t steady_ms);

 private:
  struct Failures {
    unsigned count = 0;
    std::int64_t until_ms = 0;  // the time of the next attempt, by a monotonic clock
  };
  std::map<JobId, Failures> failures_;
};

// Returns true if the job is parked and resumes automatically once a GPU has enough memory.
[[nodiscard]] bool resumes_by_itself(const Job& job);

}  // namespace ckpt::coordinator
