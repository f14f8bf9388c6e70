// SPDX-License-Identifier: Apache-2.0
// Tests whether memory may be allocated or freed while streams are captured into graphs (captures.h). A
// synchronization of the context would break the capture. The driver's allocation does not: it succeeds or is
// refused. The test is therefore a small allocation by the driver.
// Threads: any. Errors: the driver's codes.
#pragma once

#include "libckpt/inprocess/shim/core/captures.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// Allocates and frees with the driver. Returns the driver's refusal if it allows neither now. When it
// returns, earlier work of the current context has ended.
CUresult ask_beside_capture(const RealDriver& driver);

}  // namespace ckpt::shim
