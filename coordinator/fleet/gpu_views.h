// SPDX-License-Identifier: Apache-2.0
// Functions that convert the tables' facts to the form that placement uses. Pure functions.
// Threads: one io_context on one thread, like the tables.
#pragma once

#include <string>

#include "coordinator/fleet/nodes.h"
#include "coordinator/policies/placement/placement.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

// Fills in topology, driver and state of the GPU, without its jobs, migrations and cordons.
void describe_gpu(GpuView& view, const Node& node, const wire::GpuInfo& gpu);

// Returns the source of Job::expected_bytes() for display: "its quota", "it held 3.00 GiB at ...". Returns an
// empty string if the value is the job's current memory.
[[nodiscard]] std::string why_expected(const Job& job);

}  // namespace ckpt::coordinator
