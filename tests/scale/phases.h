// SPDX-License-Identifier: Apache-2.0
// Measurements of a coordinator with a long history, beside one without history and with the same nodes and
// jobs.
// Threads: one. Errors: a measurement that fails is an error; one that is too slow is a figure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/scale/simulated_nodes.h"

namespace ckpt::scale {

struct Programs {
  std::string coordinator;
  std::string command;  // gpumigrate
};

// One coordinator, its nodes, its folder.
struct Site {
  std::string home;
  std::unique_ptr<CoordinatorProcess> coordinator;
  std::unique_ptr<SimulatedNodes> nodes;
};

// Percent of a core, and writes in a minute, without any request.
nlohmann::json measure_idling(const CoordinatorProcess& coordinator, std::chrono::seconds span);

struct DryRuns {
  unsigned calls = 400;    // of the API, for each site
  unsigned commands = 41;  // of `gpumigrate run --dry-run`, for each site
};
// In turns at both sites: medians of milliseconds, and the coordinators' own processor time of a call.
Result<nlohmann::json> measure_dry_runs(const Programs& programs, const Site& much, const Site& nothing,
                                        const DryRuns& counts);

// With `polls` calls that wait: `jobs`, `abort` of an open migration and `drain` are answered, and the polls
// wait on.
Result<nlohmann::json> measure_long_polls(const Site& site, unsigned polls);

// The counts of rows before and after old ones have left the store by the default settings. With the seconds
// that it takes, and the longest time that another call waits meanwhile.
Result<nlohmann::json> measure_leaving(const CoordinatorProcess& coordinator, const std::string& home);

}  // namespace ckpt::scale
