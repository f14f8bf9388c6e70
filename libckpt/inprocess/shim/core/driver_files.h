// SPDX-License-Identifier: Apache-2.0
// The driver's device files in forked children. The driver's checkpoint closes them in the process itself only,
// and a child that still has them cannot be dumped. Every call of the driver fails in such a child anyway.
// Threads: any; what runs in the child is async-signal-safe. Ownership: none. Errors: none; without /proc
// nothing is closed.
#pragma once

namespace ckpt::shim {

// In every later child of fork: descriptors of the driver's files are closed, and their maps become memory without
// access. Such a file's name begins with /dev/nvidia or with a word of CKPT_DRIVER_FILES (separated by ',').
void drop_driver_files_in_children() noexcept;

}  // namespace ckpt::shim
