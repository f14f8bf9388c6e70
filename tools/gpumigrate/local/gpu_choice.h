// SPDX-License-Identifier: Apache-2.0
// Whether a local cluster runs on real GPUs or on the software GPU, and the environment that makes a node's
// processes use theirs. This is the one place of the product that knows the software driver's settings.
// Threads: one. Errors: kNotFound if the software GPU is needed and not built.
#pragma once

#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::cli {

struct GpuChoice {
  bool software = false;
  std::string why;      // one line for people
  std::string library;  // folder of the software driver's libraries
};

// GPUMIGRATE_SOFTWARE_GPU=1 or =0 decides; otherwise a driver that finds at least one GPU is used.
Result<GpuChoice> choose_gpu(const std::string& program_folder);

// The variables for a node's processes and its jobs; `memory` as on the command line, e.g. "8GiB". Real GPUs
// need only the library path that finds their driver: there every node of the machine has all of them.
std::vector<std::string> gpu_environment(const GpuChoice& choice, const std::string& node_folder, int gpus,
                                         const std::string& memory);

}  // namespace ckpt::cli
