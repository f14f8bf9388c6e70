// SPDX-License-Identifier: Apache-2.0
// gpumigrate-context --probe-remap: tests how a process can get memory on a GPU after the driver has restored
// its context (docs/design.md §13). The probe uses a second process of this program. It tries to import a
// descriptor that another process has exported. It also tries to create its own memory and to export that
// memory. Both tests run on the same GPU and, if there is another GPU of the same model, after a restore
// there (gpuPairs).
//
//   {"remap": {"version": 13000, "gpu": "NAME", "import": true, "own": true, "import_moved": null,
//   "own_moved": null, "save_ns": 9000000, "restore_ns": 8000000,
//             "problem": ""}}
//
// save_ns and restore_ns are the times of the last context that was saved and restored. Estimates of pauses
// start from these times. A null means that the test was not possible, and "problem" has the reason. The
// probe briefly uses a context and 2 MiB on each of the GPUs.
// Threads: one. The probe may hang in the driver. The parent process then ends it.
#pragma once

namespace ckpt::context_helper {

inline constexpr char kRankFlag[] = "--probe-remap-rank";

// Prints the result line on standard output. Returns the exit status.
int probe_remap();
// Runs the second process, with its end of the socketpair.
int probe_remap_rank(int socket);

}  // namespace ckpt::context_helper
