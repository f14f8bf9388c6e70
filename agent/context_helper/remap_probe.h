// SPDX-License-Identifier: Apache-2.0
// gpumigrate-context --probe-remap: how a process can get memory on a GPU after the driver has restored its
// context (docs/design.md §13). A second process of this program is used. The probe tries to import a
// descriptor that another process has exported. It also tries to make memory of its own and export it. It
// does both on the same GPU and, if there is another of the same model, after a restore there (gpuPairs).
//
//   {"remap": {"version": 13000, "gpu": "NAME", "import": true, "own": true, "import_moved": null,
//   "own_moved": null, "save_ns": 9000000, "restore_ns": 8000000,
//             "problem": ""}}
//
// save_ns and restore_ns are the times of the last context that was saved and restored. Estimates of pauses
// begin with them. A null could not be tried, and "problem" has the reason. Takes a context and 2 MiB on each
// of the GPUs for a moment. Threads: one. May hang in the driver: the parent process ends it.
#pragma once

namespace ckpt::context_helper {

inline constexpr char kRankFlag[] = "--probe-remap-rank";

// Prints that line on standard output. Returns the exit status.
int probe_remap();
// Runs the second process, with its end of the socketpair.
int probe_remap_rank(int socket);

}  // namespace ckpt::context_helper
