// SPDX-License-Identifier: Apache-2.0
// The pause that a live move would take, from measurements while the job runs: sizes of its memory, threads,
// descriptors, and this node's rates. And how many obstacles a move to another node would meet. For `describe`,
// `--dry-run` and drains, which ask before there is a target. A migration's own estimate has the target's rates, and
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
  // For each running job, at most once a minute; between two nodes only where `moves_processes`.
  Task<> look(bool moves_processes);

 private:
  Task<> look_at(std::shared_ptr<Job> job, bool moves_processes);
  [[nodiscard]] bool is_due(const Job& job);

  struct Node {
    bool copies_ahead = false;  // host memory
    bool leaves_out = false;    // and CRIU leaves it out (left_out_pages.h)
  };

  MigrationContext& context_;
  std::optional<Node> node_;                                                // of the pool's, once
  std::map<std::string, std::chrono::steady_clock::time_point> looked_at_;  // by folder
};

}  // namespace ckpt::agent
