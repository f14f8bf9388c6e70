// SPDX-License-Identifier: Apache-2.0
// A job's log over all its moves: the logs of the instances that ran, one after the other.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kNotFound,
// kUnavailable (the node where it runs, or ran last, is away). What former nodes wrote that are away is passed over.
#pragma once

#include <chrono>
#include <set>
#include <string>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {

struct LogChunk {
  LogChunk() = default;
  std::string bytes;
  std::uint64_t next_offset = 0;
  bool ended = false;
  Segment from;              // the instance that wrote them
  std::uint64_t length = 0;  // of the whole log, as far as its nodes have reported
  // Former nodes that are away, whose part was passed over: "node-a".
  std::set<std::string> missing;
};

// How a part of a log is wanted.
struct LogView {
  std::uint32_t limit = 0;
  bool with_times = false;    // each line begins with the time at which its node saw it
  std::int64_t since_ms = 0;  // Unix time: without what was seen before; 0: all
};

class LogReader {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  LogReader(const NodeTable& nodes, NodeCalls& calls, JobTable& jobs)
      : nodes_(nodes), calls_(calls), jobs_(jobs) {}

  // Waits for more until the deadline where there is nothing yet; in any case a moment for an instance that has moved and is
  // not freed yet, since what follows it comes after its last byte.
  control::Task<Result<LogChunk>> read(JobId id, std::uint64_t offset, LogView view, Deadline deadline);

 private:
  const NodeTable& nodes_;
  NodeCalls& calls_;
  JobTable& jobs_;
};

}  // namespace ckpt::coordinator
