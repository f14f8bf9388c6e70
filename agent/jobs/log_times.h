// SPDX-License-Identifier: Apache-2.0
// The times at which the agent saw an instance's output: JOBDIR/out.times next to out.log. A record has a
// time and the log's size at that time. There is at most one record per second, so a time is up to a second
// late. Output that was written without a running agent has the start time of the next agent.
// Threads: the event loop. Errors: none. Without records the time is unknown.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/jobs/job.h"

namespace ckpt::agent {

struct LogTime {
  std::uint64_t bytes = 0;
  std::int64_t time_ms = 0;  // Unix time in milliseconds
};

// Returns the records of the instance in `folder`, in order.
[[nodiscard]] std::vector<LogTime> read_log_times(const std::string& folder);
// Returns the first byte that was not seen before `since_ms`, or 0 without records.
[[nodiscard]] std::uint64_t first_byte_since(std::span<const LogTime> times, std::int64_t since_ms);
// Returns `bytes` of the log from `offset` on, with a time before each line that begins there. The result has
// at most `max_bytes` bytes. `covers` is the number of `bytes` that the result contains.
[[nodiscard]] std::string with_times(std::string_view bytes, std::uint64_t offset, bool begins_line,
                                     std::span<const LogTime> times, std::size_t max_bytes,
                                     std::uint64_t& covers);

// Writes the records and enforces the log's limit (log_limit.h), until the instance has ended or is removed.
Task<> record_log_times(const JobEnvironment& environment, std::weak_ptr<Job> instance);

}  // namespace ckpt::agent
