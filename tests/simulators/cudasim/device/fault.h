// SPDX-License-Identifier: Apache-2.0
// Running code that may fault (kernels, copies) on a stream's thread: a SIGSEGV, SIGBUS, SIGFPE or SIGILL
// ends the call, not the executor. Outside of run_guarded these signals end the executor as usual.
#pragma once

#include <csetjmp>

namespace cudasim {

void install_fault_handlers();

// Each thread that runs guarded code calls this first (an alternate signal stack: a kernel may run out of its
// own).
void prepare_fault_stack();

namespace detail {
extern thread_local sigjmp_buf* fault_return;
}

// Runs body; 0, or the signal that ended it. Nothing with a destructor may live inside of body.
template <typename Body>
int run_guarded(const Body& body) {
  sigjmp_buf point;
  const int signal = sigsetjmp(point, 0);
  if (signal == 0) {
    detail::fault_return = &point;
    body();
  }
  detail::fault_return = nullptr;
  return signal;
}

}  // namespace cudasim
