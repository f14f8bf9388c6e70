// SPDX-License-Identifier: Apache-2.0
// The files that a job's processes have open (host_process/file_list.h), for a move to another node.
// Threads: the event loop. Files are read on the pool of images. Ownership: the context outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "agent/host_process/criu.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/processes/task_settings.h"
#include "agent/jobs/keeper_link.h"
#include "agent/migration/modes/handover_files.h"
#include "agent/migration/modes/job_operation.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

[[nodiscard]] host::FileRules rules_of_transparent(const MigrationContext& context, const Job& job,
                                                   const local::Status& status, const host::Criu& criu);
[[nodiscard]] host::FileRules rules_of_adopted(const MigrationContext& context, const Job& job,
                                               const local::Status& status, const host::Criu& criu);

// Collects the files. Error kRefused names each obstacle.
Task<Result<host::FileList>> collect_files(MigrationContext& context, pid_t root, host::FileRules rules);

// Saves the changes since the check to the files that collect_files() found, after the dump
// (handover_files.h).
Task<Result<void>> save_handover(MigrationContext& context, pid_t root, const std::string& images,
                                 const host::FileList& listed, const host::FileRules& rules);

// Compares the files at the target. Error kRefused names each difference.
Task<Result<host::CheckedFiles>> compare_files(MigrationContext& context, const JobOperation& operation,
                                               wire::Bytes payload);
[[nodiscard]] host::Compared moment_of(const JobOperation& operation);
// Applies the settings to the restored tree, before it runs.
Task<Result<void>> apply_settings(MigrationContext& context, pid_t root, const host::TaskSettings& settings);

// Counts the obstacles to a move of the program to another node. Returns nothing if the program exited or
// this node cannot determine the count.
Task<std::optional<std::uint32_t>> count_obstacles(MigrationContext& context, std::shared_ptr<Job> job);

}  // namespace ckpt::agent
