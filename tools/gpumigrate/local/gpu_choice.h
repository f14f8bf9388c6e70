// SPDX-License-Identifier: Apache-2.0
// Chooses between real GPUs and the software GPU for a local cluster, and builds the environment in which a
// node's processes use them. This is the only part of the product that contains the software driver's
// settings.
// Threads: one. Errors: kNotFound if the software GPU is needed and not built.
#pragma once

#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::cli {

struct GpuChoice {
  bool software = false;
  std::string reason;   // the reason in one line for display
  std::string library;  // the folder of the software driver's libraries
};

// Chooses the GPUs. GPUMIGRATE_SOFTWARE_GPU=1 or =0 decides. Otherwise the installed driver is used if it
// finds a GPU.
Result<GpuChoice> choose_gpu(const std::string& program_folder);

// Returns the variables for a node's processes and its jobs. `memory` has the form of the command line, like
// "8GiB". Real GPUs need only the library path of their driver, because every node of the machine has all of
// them.
std::vector<std::string> gpu_environment(const GpuChoice& choice, const std::string& node_folder, int gpus,
                                         const std::string& memory);

}  // namespace ckpt::cli
