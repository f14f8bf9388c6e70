// SPDX-License-Identifier: Apache-2.0
// `gpumigrate local` runs a coordinator and several agents on this machine, under GPUMIGRATE_HOME. Clusters
// of several homes can run at the same time.
// Threads: one.
#pragma once

#include <optional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// The options of a local cluster. An option that is not set has the value of the existing cluster, or the
// default. Processes of the existing cluster that have exited are started again.
struct LocalOptions {
  std::optional<int> nodes;               // number of nodes; default 2
  std::optional<int> gpus;                // GPUs of each node; default 1
  std::optional<std::string> gpu_memory;  // memory of each GPU; default 8GiB
  std::string timeout;                    // the value of --timeout, which limits the wait
};

// Starts the processes that do not run yet, and returns when every node is ready. The first Ctrl-C and
// `timeout` end the wait; the processes keep running.
int local_up(Context& context, const LocalOptions& options);
// Stops jobs, agents and coordinator. No process remains, unless Ctrl-C or `timeout` ended the wait.
int local_down(Context& context, const std::string& timeout);
int local_status(Context& context);

}  // namespace ckpt::cli
