// SPDX-License-Identifier: Apache-2.0
// Inspects a process that gpumigrate has not started: its program, its GPU, and whether it can be adopted
// (docs/adr/0007). The process itself is not changed.
// Threads: the event loop. Errors: kNotFound if the process does not exist. kRefused and kNotSupported name
// the obstacle.
#pragma once

#include "agent/context_helper/context_helper.h"
#include "agent/gpus/inventory.h"
#include "agent/jobs/job_table.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

struct AdoptionContext {
  const Config& config;
  ContextHelper& contexts;
  const JobTable& jobs;
  Inventory& inventory;
};

// Inspects a process for `adopt`, before the job exists, and again when the agent starts the job.
Task<Result<wire::ProcessFacts>> inspect_process(AdoptionContext context, wire::InspectProcess request);

// Returns the bytes that `pid` uses on the GPUs of `snapshot`, as the driver reports them. The result is 0 if
// the driver reports none.
[[nodiscard]] std::uint64_t device_bytes_of(const InventorySnapshot& snapshot, pid_t pid);

}  // namespace ckpt::agent
