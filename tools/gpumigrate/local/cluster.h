// SPDX-License-Identifier: Apache-2.0
// `gpumigrate local`: a coordinator and some agents on this machine, under GPUMIGRATE_HOME. Several homes may
// run side by side. Threads: one.
#pragma once

#include <optional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// What is not given is as the known cluster has it (all of it that has ended is started again), or the
// default.
struct LocalOptions {
  std::optional<int> nodes;               // 2
  std::optional<int> gpus;                // of each node: 1
  std::optional<std::string> gpu_memory;  // 8GiB
};

// Starts what does not run yet and returns when every node is ready.
int local_up(Context& context, const LocalOptions& options);
// Stops jobs, agents and coordinator; no process is left.
int local_down(Context& context);
int local_status(Context& context);

}  // namespace ckpt::cli
