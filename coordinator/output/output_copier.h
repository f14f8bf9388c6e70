// SPDX-License-Identifier: Apache-2.0
// Copies the ends of jobs' logs from the nodes that write them (output_copies.h). While a job writes, its log
// is copied at the interval in the settings. It is copied at once when an instance has moved or ended. All
// nodes are queried at the same time, so a node that does not answer delays no other node.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: a log that
// could not be read is retried the next time; a copy that could not be written is logged.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/output/output_copies.h"

namespace ckpt::coordinator {

class OutputCopier {
 public:
  struct Dependencies {
    const NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    OutputCopies& copies;
    std::chrono::milliseconds interval;
    control::asio::any_io_executor executor;
  };
  explicit OutputCopier(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts copying. Call this once, after load() of all tables.
  void start();
  // Copies all output that the node has reported and that is not copied yet. Call this before the node is
  // removed.
  control::Task<> copy_all_of(std::string node);

 private:
  using Clock = std::chrono::steady_clock;
  struct Wanted {
    JobId job = 0;
    Incarnation incarnation = 0;
    std::uint64_t end = 0;  // the log's end as reported by the node
  };

  control::Task<> run();
  void copy_from_nodes();
  // Returns the node's instances with output that is not copied. `only_final` selects instances that write no
  // more.
  [[nodiscard]] std::vector<Wanted> wanted_of(const Node& node, bool only_final) const;
  control::Task<> copy_node(std::string node, std::vector<Wanted> instances);
  control::Task<Result<void>> copy(const std::string& node, Wanted instance);

  Dependencies deps_;
  std::set<std::string> busy_;  // nodes that are being queried
  Clock::time_point all_next_;  // the time of the next copy for instances that still write
  bool failed_ = false;         // true if the last copy could not be written
};

}  // namespace ckpt::coordinator
