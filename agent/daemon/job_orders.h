// SPDX-License-Identifier: Apache-2.0
// The coordinator's orders to start a job or to inspect a process on this node.
// Threads: the event loop. Ownership: borrows its parts, which outlive it. Errors: the reason why nothing was
// started. A failed order leaves nothing behind, and may be repeated.
#pragma once

#include "agent/context_helper/context_helper.h"
#include "agent/gpus/inventory.h"
#include "agent/jobs/job_table.h"
#include "agent/migration/ports/gpu_port.h"
#include "agent/settings/config.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

class JobOrders {
 public:
  struct Parts {
    const Config& config;
    ContextHelper& contexts;
    JobTable& jobs;
    Inventory& inventory;
    GpuPort& gpus;
  };
  explicit JobOrders(const Parts& parts) : parts_(parts) {}

  // Starts a job, or adopts its process. A coordinator that has not received the answer repeats its order. A
  // repeated order waits for the first one and returns the same instance.
  Task<Result<void>> start(wire::JobSpec spec);
  Task<Result<wire::ProcessFacts>> inspect(wire::InspectProcess request);

 private:
  // Checks and completes the record. This is done once for each instance.
  Task<Result<void>> prepare(JobRecord& record);
  Task<Result<void>> check_adopted(const wire::JobSpec& spec);

  Parts parts_;
};

}  // namespace ckpt::agent
