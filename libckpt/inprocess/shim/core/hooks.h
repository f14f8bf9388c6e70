// SPDX-License-Identifier: Apache-2.0
// The hooks: the shim's own versions of driver functions. There is one for each row of kind `hook` in
// libckpt/cuda/driver_functions.def, with the name and the type of the function that it replaces. Each is
// declared below from its row, and defined as:
//   CUresult ckpt::shim::hook::cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) { ... }
// A hook is called on the program's thread with the gate entered (gate.h), so a move changes nothing while it
// runs. It calls the real driver through real() and returns the result for the program. It throws nothing. It
// is not called for a function that the real driver lacks. Nor is it called in a forked child: there, calls
// go to the real driver, which answers as after a fork.
#pragma once

#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim::hook {

#define CKPT_SHIM_DECLARE_hook(name) decltype(::name) name;
#define CKPT_SHIM_DECLARE_gate(name)
#define CKPT_SHIM_DECLARE_query(name)
#define CKPT_SHIM_DECLARE_refuse(name)
#define CKPT_DRIVER_FUNCTION(name, kind) CKPT_SHIM_DECLARE_##kind(name)
#include "libckpt/cuda/driver_functions.def"
#undef CKPT_DRIVER_FUNCTION
#undef CKPT_SHIM_DECLARE_hook
#undef CKPT_SHIM_DECLARE_gate
#undef CKPT_SHIM_DECLARE_query
#undef CKPT_SHIM_DECLARE_refuse

}  // namespace ckpt::shim::hook
