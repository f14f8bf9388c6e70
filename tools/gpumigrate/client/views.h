// SPDX-License-Identifier: Apache-2.0
// How the coordinator's answers look to people. Pure functions of the JSON; fields that are missing show as
// "-".
#pragma once

#include <string>

#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

std::string view_jobs(const Json& jobs);
std::string view_job(const Json& job);  // `describe`
std::string view_nodes(const Json& nodes);
std::string view_gpus(const Json& gpus);
std::string view_migrations(const Json& migrations);
std::string view_plan(const Json& plan);
std::string view_run_plan(const Json& plan);  // `run --dry-run`
std::string view_event(const Json& event);    // one line

// The end of a migration: its report, or why there is none, and where the job runs.
std::string view_outcome(const Json& migration);

// "precopy  round 2  8.00 MiB/16.0 MiB  dirty 1.00 MiB/s  tx 1.00 GiB/s  remaining ... downtime ~3.50 ms ETA
//                                                                        120 ms"
std::string view_progress(const Json& migration);

}  // namespace ckpt::cli
