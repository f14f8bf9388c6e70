// SPDX-License-Identifier: Apache-2.0
// When the agent saw an instance's output: JOBDIR/out.times beside out.log. A record has a time and the log's
// bytes at that time. There is at most one a second, so a time is up to a second late. Output of a time
// without an agent has the time of the next one's start.
// Threads: the event loop. Errors: none; without records a time is not known.
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
  std::int64_t time_ms = 0;  // Unix
};

// The records of the instance in that folder, in order.
[[nodiscard]] std::vector<LogTime> read_log_times(const std::string& folder);
// Returns the first byte that was not seen before; 0 without records.
[[nodiscard]] std::uint64_t first_byte_since(std::span<const LogTime> times, std::int64_t since_ms);
// `bytes` of the log from `offset` on with a time before each line that begins there, until `most` bytes are
// full. `covers`: so many of `bytes` are in it.
[[nodiscard]] std::string with_times(std::string_view bytes, std::uint64_t offset, bool begins_line,
                                     std::span<const LogTime> times, std::size_t most, std::uint64_t& covers);

// Writes the records, and keeps the log's limit (log_limit.h), until the instance has ended or is forgotten.
Task<> keep_log_times(const JobEnvironment& environment, std::weak_ptr<Job> instance);

}  // namespace ckpt::agent
