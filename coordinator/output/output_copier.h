// SPDX-License-Identifier: Apache-2.0
// Copies the ends of jobs' logs from the nodes that write them (output_copies.h). While a job writes this is as often as
// the settings say; it is at once when an instance has moved or ended. All nodes are asked at once, and one that is silent
// delays no other.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: a log that could not be
// read is tried again the next time; a copy that could not be written is logged.
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

  // Once, after load() of everything.
  void start();
  // All that the node has reported and that is not copied yet. For a node that is about to be removed.
  control::Task<> copy_all_of(std::string node);

 private:
  using Clock = std::chrono::steady_clock;
  struct Wanted {
    JobId job = 0;
    Incarnation incarnation = 0;
    std::uint64_t end = 0;  // as its node has reported
  };

  control::Task<> run();
  void copy_from_nodes();
  // Instances of that node with output that is not copied. `only_final`: those that write no more.
  [[nodiscard]] std::vector<Wanted> wanted_of(const Node& node, bool only_final) const;
  control::Task<> copy_node(std::string node, std::vector<Wanted> instances);
  control::Task<Result<void>> copy(const std::string& node, Wanted instance);

  Dependencies deps_;
  std::set<std::string> busy_;  // nodes that are being asked
  Clock::time_point all_next_;  // when instances that write are copied again
  bool failed_ = false;         // the last copy was not written
};

}  // namespace ckpt::coordinator
