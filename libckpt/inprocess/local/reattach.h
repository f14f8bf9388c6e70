// SPDX-License-Identifier: Apache-2.0
// The names and the signal by which a keeper calls back a rank that left with DumpReady. A thread of this
// name waits in sigwaitinfo for this signal and gets a token as its value. The thread connects to the
// abstract socket of that name. The signal is sent to this thread alone, so the program's own use of the
// signal number is not affected.
// Threads: none. Errors: none.
#pragma once

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace ckpt::local {

inline constexpr const char* kServiceThreadName =
    "gpumigrate-rank";  // 15 bytes, the maximum length of a thread's name

inline int reattach_signal() {
  return SIGRTMAX;
}

inline std::string reattach_address(std::uint64_t token) {
  char name[48];
  std::snprintf(name, sizeof name, "@gpumigrate-%016llx", static_cast<unsigned long long>(token));
  return name;
}

}  // namespace ckpt::local
