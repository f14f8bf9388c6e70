// SPDX-License-Identifier: Apache-2.0
// A job's log across all its moves: the logs of its instances, one after the other. If a node is disconnected
// or removed, or has lost the log, the copy is read (output_copies.h). Parts that no copy has are skipped.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kNotFound;
// kUnavailable if the node where the job runs, or ran last, is disconnected and the copy has no more.
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
  Segment from;              // the instance that wrote the bytes
  std::uint64_t length = 0;  // length of the whole log, as far as its nodes have reported
  // The disconnected nodes whose part of the output was skipped, at least partly: "node-a".
  std::set<std::string> missing;
  std::uint64_t skipped = 0;  // bytes before `bytes` that were skipped because a node has deleted them (its
                              // job_log_limit_mib)
};

// The requested form of a part of a log.
struct LogView {
  std::uint32_t limit = 0;
  bool with_times = false;    // each line begins with the time at which its node received it
  std::int64_t since_ms = 0;  // Unix time; output received before it is left out; 0: all
};

class LogReader {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  LogReader(const NodeTable& nodes, NodeCalls& calls, JobTable& jobs, OutputCopies& copies)
      : nodes_(nodes), calls_(calls), jobs_(jobs), copies_(copies) {}

  // Reads a part of the log. Waits until the deadline while there is no output. It also waits briefly for an
  // instance that has moved and is not freed yet, because later output follows its last byte.
  control::Task<Result<LogChunk>> read(JobId id, std::uint64_t offset, LogView view, Deadline deadline);

 private:
  // A reader's position in the logs of the instances.
  struct Walk {
    JobId job = 0;
    LogView view;
    std::size_t index = 0;     // the index of the instance
    std::uint64_t begin = 0;   // the begin of the instance's log in the whole log
    std::uint64_t offset = 0;  // the offset in the whole log
    LogChunk chunk;
    [[nodiscard]] std::uint64_t offset_in_instance() const { return offset - std::min(begin, offset); }
  };
  // Queries the instance's node for a part of its log.
  control::Task<Result<wire::LogData>> ask(const Walk& walk, const Segment& segment, Deadline deadline);
  // Reads the copy of an instance whose node does not have the log. The result is bytes, a step to the next
  // instance, or the end. Returns false if only the node has the log.
  control::Task<Result<bool>> read_copy(Walk& walk, Segment segment, bool is_last);
  [[nodiscard]] std::uint64_t known_length(const Segment& segment, JobId job) const;
  [[nodiscard]] std::uint64_t known_length(const Job& job) const;

  const NodeTable& nodes_;
  NodeCalls& calls_;
  JobTable& jobs_;
  OutputCopies& copies_;
};

}  // namespace ckpt::coordinator
