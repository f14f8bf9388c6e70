// SPDX-License-Identifier: Apache-2.0
// The tables' facts as placement sees them. Pure functions. Threads: one io_context on one thread, as the
// tables.
#pragma once

#include <string>

#include "coordinator/fleet/nodes.h"
#include "coordinator/policies/placement/placement.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

// Topology, driver and state of the GPU, without its jobs, migrations and cordons.
void describe_gpu(GpuView& view, const Node& node, const wire::GpuInfo& gpu);

// Where Job::expected_bytes() is from, for people: "its quota", "it held 3.00 GiB at ..."; empty if it is
// what the job holds now.
[[nodiscard]] std::string why_expected(const Job& job);

}  // namespace ckpt::coordinator
