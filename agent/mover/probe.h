// SPDX-License-Identifier: Apache-2.0
// gpumigrate-mover --probe: the properties of the CUDA driver and of UCX on this node, for `gpumigrate
// doctor`. The mover makes this probe because it loads both libraries anyway, and either may make it hang or
// crash. The probe creates no context and opens no port.
// Threads: one. Errors: parts of the answer, as "problem".
#pragma once

namespace ckpt::mover {

// Prints one line of JSON on standard output for each library, as soon as the result is known: {"driver":
// {...}} and {"ucx": {...}}. agent/daemon/probe.h lists their fields.
void print_probe();

}  // namespace ckpt::mover
