// SPDX-License-Identifier: Apache-2.0
// The coordinator's lists as tables. Pure functions of the JSON; fields that are missing show as "-".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libckpt/api/job.h"
#include "libckpt/api/migration.h"
#include "libckpt/api/node.h"
#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {

// "moving 62%" for a job that moves; empty where its migration is not known.
using MoveOf = std::function<std::string(const std::string& job)>;

bool has_ended(const api::Job& job);
// "2 obstacles": what keeps a running job from another node; empty: nothing, or not known.
std::string obstacles_of(const api::Job& job);
// A page of /v1/migrations, or all of them.
std::vector<api::Migration> migrations_in(const Json& answer);
// "node-a:0", or "-".
std::string place_of(const api::Job& job);
// The reason of a migration: an operator's, or "drain d5: new driver".
std::string reason_of(const api::Migration& migration);
// "running", "moving 62%", "exited 0".
Cell state_of_job(const api::Job& job, const MoveOf& move_of);
// "12s ago @node-c", "FAILS (describe)".
Cell protection_of_job(const api::Job& job, const Layout& layout);

std::string view_jobs(const std::vector<api::Job>& jobs, const Layout& layout, const MoveOf& move_of = {});
std::string view_nodes(const std::vector<api::Node>& nodes, const Layout& layout);
std::string view_gpus(const std::vector<api::Gpu>& gpus, const Layout& layout);
std::string view_migrations(const std::vector<api::Migration>& migrations, const Layout& layout);

}  // namespace ckpt::cli
