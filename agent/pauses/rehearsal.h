// SPDX-License-Identifier: Apache-2.0
// A trial of a move's steps with two small processes that are created for it. Therefore a node without any
// move knows the times of a dump, a restore, a journal record and a byte of host memory. A helper
// (`gpumigrate-agent --rehearse`) runs the trial once for each version of the programs that take part. The
// lines are stored with those of pauses (pause_memory.h). No GPU is used.
// Threads: the event loop. Ownership: the helper exits at its deadline, and its processes exit with it.
// Errors: the reason why there is no answer. The node then uses the lines of a typical server.
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
  std::uint64_t restored_bytes = 0;  // bytes that were restored before the process continued
  Nanos dump_ns = 0;
  Nanos restore_ns = 0;
  // The time of the process's threads, descriptors and mappings on a typical server.
  Nanos dump_items = 0;
  Nanos restore_items = 0;
};

struct RehearsalFacts {
  std::vector<RehearsedProcess> processes;  // the smaller process first; the last process has many threads,
                                            // descriptors and mappings
  Nanos record_ns = 0;                      // time of one durable record in the agent's folder
  MemoryRates memory;
};

// Converts the facts to or from the helper's line. The error is kCorrupt for any other content.
[[nodiscard]] nlohmann::ordered_json to_json(const RehearsalFacts& facts);
Result<RehearsalFacts> parse_rehearsal(const nlohmann::ordered_json& json);

struct RehearsalOrder {
  std::string program;  // path of gpumigrate-agent
  std::string home;     // the agent's folder
  std::string criu;     // the configured path of CRIU; empty means that the helper searches for CRIU
  Milliseconds deadline{120000};
};
// Runs the helper for the agent. Errors kTimedOut and kUnavailable contain the helper's last message.
Task<Result<RehearsalFacts>> ask_rehearsal(RehearsalOrder order);

void record_rehearsal(PauseCosts& costs, const RehearsalFacts& facts);

}  // namespace ckpt::agent
