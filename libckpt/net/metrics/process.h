// SPDX-License-Identifier: Apache-2.0
// Metrics of every daemon about itself, and gpumigrate_build_info. The names are those of Prometheus's own
// libraries (process_*). Threads and ownership: the registry's. Errors: a value that cannot be read is
// omitted.
#pragma once

#include <string>

#include "libckpt/net/metrics/registry.h"

namespace ckpt::metrics {

// Adds the metrics. `component` is "coordinator" or "agent".
void add_process_metrics(Registry& registry, const std::string& component);

}  // namespace ckpt::metrics
