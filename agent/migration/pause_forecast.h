// SPDX-License-Identifier: Apache-2.0
// Forecasts the pause of a live move from measurements while the job runs: sizes of its memory, threads,
// descriptors, and this node's rates. Counts the obstacles to a move to another node. `describe`, `--dry-run`
// and drains ask for it before there is a target. A migration's own estimate has the target's rates, and
// knows how much the job writes.
// Threads: the event loop; processes are read on the pool of images. Ownership: the context outlives it.
// Errors: a size that cannot be read stays unknown.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

class PauseForecast {
 public:
  explicit PauseForecast(MigrationContext& context) : context_(context) {}
  // Forecasts for each running job, at most once a minute; between two nodes only if `moves_processes`.
  Task<> look(bool moves_processes);

 private:
  Task<> look_at(std::shared_ptr<Job> job, bool moves_processes);
  [[nodiscard]] bool is_due(const Job& job);

  struct Node {
    bool copies_ahead = false;  // host memory
    bool leaves_out = false;    // CRIU leaves it out of its dump (left_out_pages.h)
  };

  MigrationContext& context_;
  std::optional<Node> node_;                                                // of the pool's, once
  std::map<std::string, std::chrono::steady_clock::time_point> looked_at_;  // by folder
};

}  // namespace ckpt::agent
