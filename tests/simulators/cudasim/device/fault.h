// SPDX-License-Identifier: Apache-2.0
// Runs code that may fault (kernels, copies) on a stream's thread: a SIGSEGV, SIGBUS, SIGFPE or SIGILL ends
// the call, not the executor. Outside of run_guarded these signals end the executor as usual.
#pragma once

#include <csetjmp>

namespace cudasim {

void install_fault_handlers();

// Sets up an alternate signal stack, since a kernel may exhaust its own stack. Each thread that runs guarded
// code calls this first.
void prepare_fault_stack();

namespace detail {
extern thread_local sigjmp_buf* fault_return;
}

// Runs body. Returns 0, or the signal that ended body. No object with a destructor may exist inside of body.
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
