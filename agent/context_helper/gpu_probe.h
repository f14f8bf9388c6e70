// SPDX-License-Identifier: Apache-2.0
// gpumigrate-context --probe-gpu: whether the one GPU that this process sees (CUDA_VISIBLE_DEVICES) still
// computes. It sets, copies and reads back 2 MiB in a context of its own. One line on standard output:
//
//   {"gpu_probe": {"result": "passed" | "failed" | "none", "detail": "..."}}
//
// "none": it could not be tried for a reason that is no evidence against the GPU (no driver, no memory left,
// no such device). Threads: one. May hang in the driver: that is an answer, too, and the parent process ends
// it.
#pragma once

namespace ckpt::context_helper {

inline constexpr char kProbeGpuFlag[] = "--probe-gpu";

// The exit status.
int probe_gpu();

}  // namespace ckpt::context_helper
