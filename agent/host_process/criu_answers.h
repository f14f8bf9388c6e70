// SPDX-License-Identifier: Apache-2.0
// CRIU asks the kernel dozens of questions whenever it is started, some 40 ms of every dump and restore. It
// remembers the answers in /run/criu.kdat, but only where /run is a tmpfs. Where it is not (containers), they
// are asked once, with a private tmpfs on /run, and kept in a folder in memory. CRIU reads that folder in its
// mode for users who cannot write to /run. As root that mode lacks nothing else that jobs need. Threads: the
// event loop. Ownership: the folder stays until the machine is started again; each version of CRIU has its
// own.
// Errors: none; without the folder CRIU asks each time.
#pragma once

#include <string>
#include <vector>

#include "agent/io/async.h"

namespace ckpt::agent::host {

// Returns the folder. Empty: CRIU needs none, or there can be none. `work` is a folder for CRIU's output.
Task<std::string> criu_kdat_cache_dir(std::string criu, std::string version, std::string work);

// Environment and options for starting CRIU with that folder; each empty for an empty folder.
[[nodiscard]] std::vector<std::string> environment_for(const std::string& answers);
[[nodiscard]] std::vector<std::string> options_for(const std::string& answers);

}  // namespace ckpt::agent::host
