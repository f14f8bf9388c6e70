// SPDX-License-Identifier: Apache-2.0
// The JSON documents of the API, as docs/api.md describes them. Pure but for reading the tables.
#pragma once

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/fleet/jobs.h"
#include "coordinator/health/policy.h"
#include "coordinator/operations/planner.h"
#include "coordinator/operations/preemptor.h"
#include "coordinator/requests/json.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

[[nodiscard]] std::string time_text(std::int64_t unix_ms);  // RFC 3339, UTC

[[nodiscard]] json text_or_null(const std::string& text);

[[nodiscard]] json candidates_json(const std::vector<Candidate>& candidates);
// Jobs that make place for another one: `to` is null for one that is parked.
[[nodiscard]] json displaced_json(const std::vector<Displacement>& displaced);
[[nodiscard]] json gang_plan_json(const SubmitRequest& request, const GangPlan& plan);
[[nodiscard]] json run_plan_json(const SubmitRequest& request, const RunPlan& run);
[[nodiscard]] json pause_ms_json(const std::optional<ExpectedPause>& pause);
[[nodiscard]] json pause_from_json(const std::optional<ExpectedPause>& pause);  // "last_move" or "estimate"
[[nodiscard]] json plan_json(const Job& job, const MigratePlan& plan, const wire::MigrateOptions& options,
                             const NodeTable& nodes);

}  // namespace ckpt::coordinator
