// SPDX-License-Identifier: Apache-2.0
// Measurements of a coordinator with a long history, compared with a coordinator without history that has the
// same nodes and jobs.
// Threads: one. Errors: a measurement that fails is an error; a measurement that is too slow is a figure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/scale/simulated_nodes.h"

namespace ckpt::scale {

struct Programs {
  std::string coordinator;
  std::string command;  // the path of gpumigrate
};

// One coordinator, its nodes and its folder.
struct Site {
  std::string home;
  std::unique_ptr<CoordinatorProcess> coordinator;
  std::unique_ptr<SimulatedNodes> nodes;
};

// Measures the coordinator's processor time in percent of a core, and its writes per minute, without any
// request.
nlohmann::json measure_idling(const CoordinatorProcess& coordinator, std::chrono::seconds span);

struct DryRuns {
  unsigned calls = 400;    // the number of API calls for each site
  unsigned commands = 41;  // the number of `gpumigrate run --dry-run` commands for each site
};
// Measures both sites in turns: medians of milliseconds, and the coordinators' own processor time of a call.
Result<nlohmann::json> measure_dry_runs(const Programs& programs, const Site& much, const Site& nothing,
                                        const DryRuns& counts);

// Measures a site with `polls` waiting calls. `jobs`, `abort` of an open migration and `drain` are answered
// while the polls continue to wait.
Result<nlohmann::json> measure_long_polls(const Site& site, unsigned polls);

// Returns the counts of rows before and after old rows were removed from the store by the default settings.
// Also returns the seconds that the removal takes, and the longest time that another call waits meanwhile.
Result<nlohmann::json> measure_leaving(const CoordinatorProcess& coordinator, const std::string& home);

}  // namespace ckpt::scale
