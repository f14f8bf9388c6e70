// SPDX-License-Identifier: Apache-2.0
// The names and values that gpumigrate-init and its keeper exchange. The header has constants only: the init
// is static and small.
#pragma once

namespace ckpt::keeper {

// The init's own name (/proc/PID/comm) once its program has ended: the signal that killed it, or its exit
// code.
inline constexpr char kSignalName[] = "gpm-signal ";
inline constexpr char kExitName[] = "gpm-exit ";

// The value that comes with a SIGTERM which the keeper sends to each process of the job. The init does not
// pass it on, and waits for all of them before it ends.
inline constexpr int kToTheWholeJob = 0x6a0b;

}  // namespace ckpt::keeper
