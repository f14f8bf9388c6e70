// SPDX-License-Identifier: Apache-2.0
// A trial of a move's steps with two small processes made for it. So a node that has moved nothing yet knows
// the times of a dump, a restore, a journal record and a byte of host memory. It is done by a helper
// (`gpumigrate-agent --rehearse`), once for each version of the programs that take part. The lines are kept
// with those of pauses (pause_memory.h). No GPU is touched.
// Threads: the event loop. Ownership: the helper ends with its deadline, and its processes end with it.
// Errors: why there is no answer; the node goes on with the lines of a common server.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/io/async.h"
#include "agent/pauses/pause_estimate.h"

namespace ckpt::agent {

// The measurements of one process.
struct RehearsedProcess {
  std::uint64_t bytes = 0;
  std::uint64_t restored_bytes = 0;  // before it went on
  Nanos dump_ns = 0;
  Nanos restore_ns = 0;
  // The share of its threads, descriptors and mappings on a common server.
  Nanos dump_items = 0;
  Nanos restore_items = 0;
};

struct RehearsalFacts {
  std::vector<RehearsedProcess> processes;  // the smaller one first; the last has many threads and the like
  Nanos record_ns = 0;                      // one durable record in the agent's folder
  MemoryRates memory;
};

// The line of the helper, and back. kCorrupt for anything else.
[[nodiscard]] nlohmann::ordered_json to_json(const RehearsalFacts& facts);
Result<RehearsalFacts> parse_rehearsal(const nlohmann::ordered_json& json);

struct RehearsalOrder {
  std::string program;  // gpumigrate-agent
  std::string home;     // the agent's folder
  std::string criu;     // the configured one; empty: it is looked for
  Milliseconds deadline{120000};
};
// Runs the helper for the agent. kTimedOut, kUnavailable with the helper's last message.
Task<Result<RehearsalFacts>> ask_rehearsal(RehearsalOrder order);

void keep_rehearsal(PauseCosts& costs, const RehearsalFacts& facts);

}  // namespace ckpt::agent
