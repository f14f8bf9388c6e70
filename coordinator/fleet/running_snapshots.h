// SPDX-License-Identifier: Apache-2.0
// The snapshots that are being taken now, one of a job. Kept in memory only: after a restart a node reports
// the outcome of its own.
// Threads: one. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::coordinator {

// Its job may leave the node meanwhile.
struct RunningSnapshot {
  RunningSnapshot() = default;
  RunningSnapshot(std::uint64_t shown, std::string at, std::string vault)
      : task(shown), node(std::move(at)), owner(std::move(vault)) {}
  std::uint64_t task = 0;  // as which it is shown (image_tasks.h); 0: none
  std::string node;        // that takes it
  std::string owner;       // whose vault it goes to
  std::uint64_t set = 0;   // as in its order
  bool has_begun = false;  // its node has reported on it
  bool failed = false;     // as its node reports, whatever becomes of its answer
};

class RunningSnapshots {
 public:
  void begin(wire::JobId job, RunningSnapshot snapshot) { of_job_[job] = std::move(snapshot); }
  [[nodiscard]] RunningSnapshot* find(wire::JobId job) {
    const auto at = of_job_.find(job);
    return at == of_job_.end() ? nullptr : &at->second;
  }
  [[nodiscard]] bool contains(wire::JobId job) const { return of_job_.contains(job); }
  void end(wire::JobId job) { of_job_.erase(job); }

 private:
  std::map<wire::JobId, RunningSnapshot> of_job_;
};

}  // namespace ckpt::coordinator
