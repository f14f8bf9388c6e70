// SPDX-License-Identifier: Apache-2.0
// Inspects a process that gpumigrate has not started: its program, its GPU, and whether it can be adopted
// (docs/adr/0007). The process itself is not touched.
// Threads: the event loop. Errors: kNotFound for no such process, kRefused and kNotSupported naming the
// obstacle.
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

// Inspects for `adopt`, before there is a job, and again when the agent starts the job.
Task<Result<wire::ProcessFacts>> inspect_process(AdoptionContext context, wire::InspectProcess request);

// Returns the bytes that `pid` has on the GPUs of `snapshot`, as the driver reports them; 0 if it does not.
[[nodiscard]] std::uint64_t device_bytes_of(const InventorySnapshot& snapshot, pid_t pid);

}  // namespace ckpt::agent
