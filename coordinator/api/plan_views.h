// SPDX-License-Identifier: Apache-2.0
// Dry runs and obstacles as the API shows them (libckpt/api). Pure except for reading the tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/fleet/whole_job.h"
#include "coordinator/operations/moves.h"
#include "coordinator/operations/planner.h"
#include "coordinator/operations/preemptor.h"
#include "coordinator/policies/job_move_plan.h"
#include "libckpt/api/plan.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

[[nodiscard]] std::optional<double> pause_ms_if_any(const std::optional<ExpectedPause>& pause);
// Returns the source of the expected pause: "last_move" or "estimate".
[[nodiscard]] std::optional<std::string> pause_from_if_any(const std::optional<ExpectedPause>& pause);

[[nodiscard]] std::vector<api::Displacement> displaced_view(const std::vector<Displacement>& displaced);
[[nodiscard]] api::RunPlan run_plan_view(const SubmitRequest& request, const RunPlan& plan);
// Returns the API view of a planned move. `pause` is its expected pause (JobMoves::pause_of()).
[[nodiscard]] api::MovePlan move_plan_view(const WholeJob& job, const JobMovePlan& plan,
                                           wire::MigrateOptions options,
                                           const std::optional<ExpectedPause>& pause);
[[nodiscard]] api::Obstacles obstacles_view(const Job& job, const MoveObstacles& found);

}  // namespace ckpt::coordinator
