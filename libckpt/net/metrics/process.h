// SPDX-License-Identifier: Apache-2.0
// Metrics of every daemon about itself, under the names that Prometheus's own libraries use (process_*), and
// gpumigrate_build_info.
// Threads and ownership: the registry's. Errors: what cannot be read is left out.
#pragma once

#include <string>

#include "libckpt/net/metrics/registry.h"

namespace ckpt::metrics {

// `component`: "coordinator" or "agent".
void add_process_metrics(Registry& registry, const std::string& component);

}  // namespace ckpt::metrics
