// SPDX-License-Identifier: Apache-2.0
// A store with much behind it, written without a coordinator. Not while one runs on that folder.
// Errors: those of the store.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::coordinator::test {

struct Past {
  Past() = default;
  Past(std::uint64_t of_jobs, std::uint64_t of_migrations, std::uint64_t of_events)
      : jobs(of_jobs), migrations(of_migrations), events(of_events) {}
  std::uint64_t jobs = 0;        // ended ones, called "old", of node-a
  std::uint64_t migrations = 0;  // closed ones of these jobs, from node-a to node-b
  std::uint64_t events = 0;
  std::size_t environment_bytes = 0;  // of each job
  bool reports = false;               // of both sides of each migration
  std::int64_t ended_ms = 1'000;      // all jobs and migrations
  std::int64_t first_event_ms = 0;    // the events lie evenly between it and the last
  std::int64_t last_event_ms = 0;
};

Result<void> write_past(const std::string& coordinator_folder, const Past& past);

}  // namespace ckpt::coordinator::test
