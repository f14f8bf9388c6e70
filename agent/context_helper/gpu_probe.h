// SPDX-License-Identifier: Apache-2.0
// gpumigrate-context --probe-gpu: tests whether the one GPU that this process sees (CUDA_VISIBLE_DEVICES)
// still computes. The test sets, copies and reads back 2 MiB in its own context. It prints one line on
// standard output:
//
//   {"gpu_probe": {"result": "passed" | "failed" | "none", "detail": "..."}}
//
// "none" means that the test was not possible. The reason is then no evidence against the GPU (no driver, no
// memory left, no such device).
// Threads: one. The test may hang in the driver. A hang also counts as a result, and the parent process then
// kills the test.
#pragma once

namespace ckpt::context_helper {

inline constexpr char kProbeGpuFlag[] = "--probe-gpu";

// Runs the probe and returns the exit status.
int probe_gpu();

}  // namespace ckpt::context_helper
