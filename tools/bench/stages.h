// SPDX-License-Identifier: Apache-2.0
// What other sections want to know of the section "stages". Threads: one. Errors: of measuring it, if it has not been.
#pragma once

#include "tools/bench/bench.h"

namespace ckpt::bench {

inline constexpr const char* kBoundRow = "bound: cores / sum of 1 / rate per core";

inline constexpr const char* kScanRow = "scan";

// GB/s that a pipeline of all stages cannot surpass; the stages are measured now if the report lacks them.
Result<double> bound_of_cores(const BenchOptions& options, Report& report);

}  // namespace ckpt::bench
