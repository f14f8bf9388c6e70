// SPDX-License-Identifier: Apache-2.0
// `gpumigrate local`: a coordinator and some agents on this machine, under GPUMIGRATE_HOME. Several homes may
// run side by side. Threads: one.
#pragma once

#include <optional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// Options of a local cluster. One that is not given is as the known cluster has it (all of that cluster that
// has ended is started again), or the default.
struct LocalOptions {
  std::optional<int> nodes;               // 2
  std::optional<int> gpus;                // of each node: 1
  std::optional<std::string> gpu_memory;  // 8GiB
  std::string timeout;                    // of the waiting
};

// Starts what does not run yet and returns when every node is ready. The first Ctrl-C and `timeout` end the
// waiting; what was started goes on.
int local_up(Context& context, const LocalOptions& options);
// Stops jobs, agents and coordinator; no process is left, unless the waiting was ended.
int local_down(Context& context, const std::string& timeout);
int local_status(Context& context);

}  // namespace ckpt::cli
