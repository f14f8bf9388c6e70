// SPDX-License-Identifier: Apache-2.0
// Jobs as the API shows them (libckpt/api). Pure except for reading the tables, and the clock for an image's
// age.
#pragma once

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/whole_job.h"
#include "coordinator/migration/migration_table.h"
#include "coordinator/operations/job_states.h"
#include "libckpt/api/job.h"

namespace ckpt::coordinator {

[[nodiscard]] api::Job job_view(const Job& job, const JobStates& states);
[[nodiscard]] api::JobDetail job_detail_view(const Job& job, const JobStates& states, const NodeTable& nodes,
                                             const MigrationTable& migrations);
// Returns the API view of a gang. `open` is the open migration of its ranks, if one exists.
[[nodiscard]] api::Job gang_view(const WholeJob& gang, const JobStates& states);
[[nodiscard]] api::GangDetail gang_detail_view(const WholeJob& gang, const JobStates& states,
                                               const Migration* open);

}  // namespace ckpt::coordinator
