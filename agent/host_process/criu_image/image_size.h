// SPDX-License-Identifier: Apache-2.0
// Counts the processes, threads, descriptors and mappings of a CRIU image: its restore takes time for them
// beside bytes. The count comes from names and sizes of files, so it is an estimate.
// Threads: any; reads a folder (offload()). Errors: none; what cannot be read counts nothing.
#pragma once

#include <string>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {

[[nodiscard]] TreeSize size_of_image(const std::string& folder);

}  // namespace ckpt::agent::host
