// SPDX-License-Identifier: Apache-2.0
// Jobs as the API shows them (libckpt/api). Pure except for reading the tables, and the clock for an image's
// age.
#pragma once

#include "coordinator/fleet/whole_job.h"
#include "coordinator/gangs/moves/job_moves.h"
#include "coordinator/operations/job_states.h"
#include "libckpt/api/job.h"

namespace ckpt::coordinator {

// Returns the API view of a job of any number of ranks.
[[nodiscard]] api::Job job_view(const WholeJob& job, const JobStates& states, const JobMoves& moves);
[[nodiscard]] api::JobDetail job_detail_view(const WholeJob& job, const JobStates& states,
                                             const JobMoves& moves, const NodeTable& nodes,
                                             const MigrationTable& migrations);

}  // namespace ckpt::coordinator
