// SPDX-License-Identifier: Apache-2.0
// Streams of the process that are being captured into graphs. While there is one, a synchronization of its context breaks the capture, where the
// driver's own allocating and freeing does not (or refuses in its own way): then the driver is asked by a small allocation of its own.
// Threads: any. Errors: the driver's codes.
#pragma once

#include "libckpt/shim/real_driver.h"

namespace ckpt::shim {

void capture_began() noexcept;
void capture_ended() noexcept;
// May stay true for too long (a capture that ended with its stream), which costs time only.
[[nodiscard]] bool captures_open() noexcept;

// Allocates and frees as the driver does: its refusal, if it allows neither now. When it returns, earlier work of the current context has ended.
CUresult ask_beside_capture(const RealDriver& driver);

}  // namespace ckpt::shim
