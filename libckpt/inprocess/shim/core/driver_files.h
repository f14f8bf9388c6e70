// SPDX-License-Identifier: Apache-2.0
// Removal of the driver's device files from forked children. The driver's checkpoint closes these files only
// in the process itself, and a child that still has them cannot be dumped. Every driver call fails in such a
// child anyway.
// Threads: any; the code in the child is async-signal-safe. Ownership: none. Errors: none; without /proc
// nothing is closed.
#pragma once

namespace ckpt::shim {

// Closes descriptors of the driver's files in every later child of fork, and replaces their maps by
// inaccessible memory. The name of such a file begins with /dev/nvidia or with a word of CKPT_DRIVER_FILES
// (separated by ',').
void drop_driver_files_in_children() noexcept;

}  // namespace ckpt::shim
