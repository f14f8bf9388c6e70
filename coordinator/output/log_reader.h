// SPDX-License-Identifier: Apache-2.0
// A job's log over all its moves: the logs of the instances that ran, one after the other.
// For a node that is away or removed, or has lost the log, the copy answers (output_copies.h). What is in no copy is passed over.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kNotFound,
// kUnavailable (the node where it runs, or ran last, is away, and the copy has no more).
#pragma once

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/output/output_copies.h"

namespace ckpt::coordinator {

struct LogChunk {
  std::string bytes;
  std::uint64_t next_offset = 0;
  bool ended = false;
  Segment from;              // the instance that wrote them
  std::uint64_t length = 0;  // of the whole log, as far as its nodes have reported
  // Nodes that are away, of whose part something was passed over: "node-a".
  std::set<std::string> missing;
  std::uint64_t skipped = 0;  // bytes before `bytes` that a node has freed (its job_log_limit_mib)
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
  LogReader(const NodeTable& nodes, NodeCalls& calls, JobTable& jobs, OutputCopies& copies)
      : nodes_(nodes), calls_(calls), jobs_(jobs), copies_(copies) {}

  // Waits for more until the deadline where there is nothing yet; in any case a moment for an instance that has moved and is
  // not freed yet, since what follows it comes after its last byte.
  control::Task<Result<LogChunk>> read(JobId id, std::uint64_t offset, LogView view, Deadline deadline);

 private:
  // Where a reader is in the logs of the instances.
  struct Walk {
    JobId job = 0;
    LogView view;
    std::size_t index = 0;     // of the instance
    std::uint64_t begin = 0;   // where its log starts in the whole log
    std::uint64_t offset = 0;  // in the whole log
    LogChunk chunk;
    [[nodiscard]] std::uint64_t offset_in_instance() const { return offset - std::min(begin, offset); }
  };
  // Asks the instance's node.
  control::Task<Result<wire::LogData>> ask(const Walk& walk, const Segment& segment, Deadline deadline);
  // Reads the copy of an instance whose node does not have the log: bytes, or the step to the next instance, or the end.
  // False: only its node knows.
  control::Task<Result<bool>> read_copy(Walk& walk, Segment segment, bool is_last);
  [[nodiscard]] std::uint64_t known_length(const Segment& segment, JobId job) const;
  [[nodiscard]] std::uint64_t known_length(const Job& job) const;

  const NodeTable& nodes_;
  NodeCalls& calls_;
  JobTable& jobs_;
  OutputCopies& copies_;
};

}  // namespace ckpt::coordinator
