// SPDX-License-Identifier: Apache-2.0
// gpumigrate-mover --probe: the CUDA driver's and UCX's properties on this node, for `gpumigrate doctor`. It
// is the mover that asks, since it is the process that loads both anyway and that may hang or die of either.
// Makes no context and opens no port.
// Threads: one. Errors: parts of the answer, as "problem".
#pragma once

namespace ckpt::mover {

// One line of JSON on standard output for each, as soon as it is known: {"driver": {...}} and {"ucx": {...}};
// agent/daemon/probe.h shows their fields.
void print_probe();

}  // namespace ckpt::mover
