// SPDX-License-Identifier: Apache-2.0
// Forecasts the pause of a live move from measurements while the job runs: the sizes of its memory, threads
// and descriptors, and this node's rates. The forecast also counts the obstacles to a move to another node.
// `describe`, `--dry-run` and drains request it before there is a target. A migration's own estimate uses the
// target's rates, and includes how much the job writes.
// Threads: the event loop. Processes are read on the pool of images. Ownership: the context outlives it.
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
  // Forecasts the pause of each running job, at most once a minute. A move between two nodes is forecast only
  // if `moves_processes`.
  Task<> refresh(bool moves_processes);

 private:
  Task<> refresh_job(std::shared_ptr<Job> job, bool moves_processes);
  // Returns whether a forecast of the job is due. If so, the forecast counts as made now.
  [[nodiscard]] bool mark_if_due(const Job& job);

  struct Node {
    bool copies_ahead = false;  // true if host memory is copied ahead
    bool leaves_out = false;    // true if CRIU leaves this memory out of its dump (left_out_pages.h)
  };

  MigrationContext& context_;
  std::optional<Node> node_;  // facts about the node, read once on the pool
  // time of the last forecast, by the instance's folder
  std::map<std::string, std::chrono::steady_clock::time_point> refreshed_at_;
};

}  // namespace ckpt::agent
