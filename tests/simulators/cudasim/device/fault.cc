// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/device/fault.h"

#include <sys/mman.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace cudasim {
namespace detail {
thread_local sigjmp_buf* fault_return = nullptr;
}

namespace {

constexpr std::size_t kStackBytes = 64 * 1024;

void on_fault(int signal) {
  if (detail::fault_return != nullptr) siglongjmp(*detail::fault_return, signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void install_fault_handlers() {
  struct sigaction action {};
  action.sa_handler = on_fault;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;  // the long jump out of the handler leaves no signal blocked
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
}

void prepare_fault_stack() {
  stack_t stack{};
  stack.ss_sp = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = kStackBytes;
  if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

}  // namespace cudasim
