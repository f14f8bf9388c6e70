// SPDX-License-Identifier: Apache-2.0
// What may be done about memory while streams are captured into graphs (captures.h). A synchronization of the
// context would break the capture. The driver's own allocating and freeing does not, or it refuses with an
// error. So the driver is asked by a small allocation of its own. Threads: any. Errors: the driver's codes.
#pragma once

#include "libckpt/inprocess/shim/core/captures.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// Allocates and frees as the driver does: its refusal, if it allows neither now. When it returns, earlier
// work of the current context has ended.
CUresult ask_beside_capture(const RealDriver& driver);

}  // namespace ckpt::shim
