// SPDX-License-Identifier: Apache-2.0
// The helper's work: each order of the agent becomes one call of the driver.
// Threads: the helper's only thread. A function blocks as long as the driver's call does. Errors: the answer
// contains the error, with the CUresult.
#pragma once

#include "agent/context_helper/messages.h"
#include "libckpt/cuda/driver.h"

namespace ckpt::context_helper {

namespace context = ckpt::agent::context;

[[nodiscard]] bool can_checkpoint(const DriverApi& api);
inline constexpr int kChangesGpu = 13000;  // CUDA 13.0 (driver 580) added gpuPairs

// Loads the driver, calls cuInit, and returns the kReady answer. `api` is null if a step failed.
context::Answer start_driver(const DriverApi*& api);

context::Answer perform(const DriverApi& api, const context::Order& order);

}  // namespace ckpt::context_helper
