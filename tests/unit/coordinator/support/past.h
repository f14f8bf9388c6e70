// SPDX-License-Identifier: Apache-2.0
// A store with a long history, written without a coordinator. Do not use it while a coordinator runs on that
// folder. Errors: those of the store.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::coordinator::test {

struct Past {
  Past() = default;
  Past(std::uint64_t of_jobs, std::uint64_t of_migrations, std::uint64_t of_events)
      : jobs(of_jobs), migrations(of_migrations), events(of_events) {}
  std::uint64_t jobs = 0;        // ended jobs, called "old", of node-a
  std::uint64_t migrations = 0;  // closed migrations of these jobs, from node-a to node-b
  std::uint64_t events = 0;
  std::size_t environment_bytes = 0;  // the environment's size of each job
  bool reports = false;               // whether both sides of each migration have reports
  std::int64_t ended_ms = 1'000;      // the end of all jobs and migrations
  std::int64_t first_event_ms = 0;    // the time of the first event; events are spread evenly from then to
                                      // the last event
  std::int64_t last_event_ms = 0;
};

Result<void> write_past(const std::string& coordinator_folder, const Past& past);

}  // namespace ckpt::coordinator::test
