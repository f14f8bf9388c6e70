// SPDX-License-Identifier: Apache-2.0
// How many processes, threads, descriptors and mappings an image of CRIU has: what its restore takes time for beside
// bytes. By the names and sizes of its files, so it is an estimate.
// Threads: any; reads a folder (offload()). Errors: none; what cannot be read counts nothing.
#pragma once

#include <string>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {

[[nodiscard]] TreeSize size_of_image(const std::string& folder);

}  // namespace ckpt::agent::host
