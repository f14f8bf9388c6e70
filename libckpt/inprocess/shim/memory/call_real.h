// SPDX-License-Identifier: Apache-2.0
// Calls a function of the real driver, or returns the error for a function that it lacks.
// Threads: any.
#pragma once

#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

template <class Function, class... Arguments>
CUresult call_real(Function* function, Arguments... arguments) {
  return function != nullptr ? function(arguments...) : lacking_answer();
}

}  // namespace ckpt::shim
