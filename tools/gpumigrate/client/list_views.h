// SPDX-License-Identifier: Apache-2.0
// The coordinator's lists as tables.
// Threads: pure functions of the JSON. A missing field is shown as "-".
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

// A function that returns "moving 62%" for a job that moves, or an empty text if its migration is unknown.
using MoveOf = std::function<std::string(const std::string& job)>;

bool has_ended(const api::Job& job);
// Returns "2 obstacles" if a running job cannot move to another node. Returns an empty text if there are
// none, or if they are unknown.
std::string obstacles_of(const api::Job& job);
// Returns the migrations of an answer: a page of /v1/migrations, or the whole list.
std::vector<api::Migration> migrations_in(const Json& answer);
// Returns the GPUs of the job like "node-a:0", or "-" if its place is unknown.
std::string place_of(const api::Job& job);
// Returns the reason of a migration: an operator's text, or a text like "drain d5: new driver".
std::string reason_of(const api::Migration& migration);
// Returns the state of the job as text, like "running", "moving 62%" or "exited 0".
Cell state_of_job(const api::Job& job, const MoveOf& move_of);
// Returns the age and place of the newest image, like "12s ago @node-c", or "FAILS (describe)".
Cell protection_of_job(const api::Job& job, const Layout& layout);

std::string view_jobs(const std::vector<api::Job>& jobs, const Layout& layout, const MoveOf& move_of = {});
std::string view_nodes(const std::vector<api::Node>& nodes, const Layout& layout);
std::string view_gpus(const std::vector<api::Gpu>& gpus, const Layout& layout);
std::string view_migrations(const std::vector<api::Migration>& migrations, const Layout& layout);

}  // namespace ckpt::cli
