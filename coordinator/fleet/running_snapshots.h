// SPDX-License-Identifier: Apache-2.0
// The snapshots that are currently being taken, at most one per job. They are stored in memory only: after a
// restart each node reports the outcome of its own snapshot.
// Threads: one. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::coordinator {

// A snapshot that is being taken. Its job may leave the node in the meantime.
struct RunningSnapshot {
  RunningSnapshot() = default;
  RunningSnapshot(std::uint64_t shown, std::string at, std::string checkpoint_store)
      : task(shown), node(std::move(at)), owner(std::move(checkpoint_store)) {}
  std::uint64_t task = 0;  // the task that shows the snapshot (image_tasks.h); 0: none
  std::string node;        // the node that takes the snapshot
  std::string owner;       // the node whose checkpoint store receives the snapshot
  std::uint64_t set = 0;   // the set number in the snapshot's order
  bool has_begun = false;  // the node has reported on the snapshot
  bool failed = false;     // the node reported a failure, whatever its answer to the order is
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
