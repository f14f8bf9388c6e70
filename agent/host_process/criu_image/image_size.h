// SPDX-License-Identifier: Apache-2.0
// Counts the processes, threads, descriptors and mappings of a CRIU image. A restore takes time for these
// objects as well as for the bytes. The count comes from the names and sizes of files, so it is an estimate.
// Threads: any. The function reads a folder (use offload()). Errors: none. Unreadable files are not counted.
#pragma once

#include <string>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {

[[nodiscard]] TreeSize size_of_image(const std::string& folder);

}  // namespace ckpt::agent::host
