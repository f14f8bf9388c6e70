// SPDX-License-Identifier: Apache-2.0
// Checks whether this node would accept a program that another node would move here. A migration's target and
// a dry run call the same functions, which change nothing.
// Threads: the event loop. Files are read on the pool of images. Ownership: the context outlives it. Errors:
// kRefused, kNotFound, kNotSupported and kInvalidArgument, with the reason. kProtocol for a list that no
// source sends.
#pragma once

#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

// Returns the facts of this node that its peer compares with the job, without addresses and costs.
Task<EndpointPayload> describe_endpoint(MigrationContext& context);
// Checks whether this node may run a job with that description.
[[nodiscard]] Result<void> check_spec(const GpuPort& gpus, const wire::JobSpec& spec);
// Checks a move that does not begin.
Task<Result<void>> check_target(MigrationContext& context, wire::CheckTarget request);

}  // namespace ckpt::agent
