// SPDX-License-Identifier: Apache-2.0
// Taking in a process that was not started by us: what it is, on which GPU, and whether it can be
// (docs/adr/0007). Nothing of it is touched.
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

// For `adopt` before there is a job, and again for the agent's own start of it.
Task<Result<wire::ProcessFacts>> inspect_process(AdoptionContext context, wire::InspectProcess request);

// How many bytes the driver says that `pid` has on the GPUs of `snapshot`; 0 if it does not say.
[[nodiscard]] std::uint64_t device_bytes_of(const InventorySnapshot& snapshot, pid_t pid);

}  // namespace ckpt::agent
