// SPDX-License-Identifier: Apache-2.0
// CRIU probes dozens of kernel features at each start, which takes some 40 ms of every dump and restore. CRIU
// caches the results in /run/criu.kdat, but only if /run is a tmpfs. In containers /run is often no tmpfs.
// The features are then probed once, with a private tmpfs on /run, and the results are stored in a folder in
// memory. CRIU reads that folder in its mode for users who cannot write to /run. If CRIU runs as root, that
// mode lacks nothing else that jobs need.
// Threads: the event loop. Ownership: the folder stays until the machine restarts. Each version of CRIU has
// its own folder. Errors: none. Without the folder CRIU probes the features at each start.
#pragma once

#include <string>
#include <vector>

#include "agent/io/async.h"

namespace ckpt::agent::host {

// Returns the folder in which CRIU finds the results. An empty string means that CRIU needs no folder, or
// that none can be created. `work` is a folder for CRIU's output.
Task<std::string> criu_kdat_cache_dir(std::string criu, std::string version, std::string work);

// Returns the environment for starting CRIU with the folder `answers`. options_for() returns CRIU's options
// for it. Both results are empty if `answers` is empty.
[[nodiscard]] std::vector<std::string> environment_for(const std::string& answers);
[[nodiscard]] std::vector<std::string> options_for(const std::string& answers);

}  // namespace ckpt::agent::host
