// SPDX-License-Identifier: Apache-2.0
// The names and values that gpumigrate-init and its keeper exchange. The header contains only constants,
// because the init is static and small.
#pragma once

namespace ckpt::keeper {

// The init's own name (/proc/PID/comm) after its program has exited: the signal that killed the program, or
// the program's exit code.
inline constexpr char kSignalName[] = "gpm-signal ";
inline constexpr char kExitName[] = "gpm-exit ";

// The value of a SIGTERM that the keeper sends to each process of the job. The init does not pass this signal
// on, and waits for all processes before it exits.
inline constexpr int kToTheWholeJob = 0x6a0b;

}  // namespace ckpt::keeper
