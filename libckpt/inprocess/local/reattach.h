// SPDX-License-Identifier: Apache-2.0
// How a keeper calls back a rank that left with DumpReady. A thread of this name waits in sigwaitinfo for
// this signal and gets a token as its value. It connects to the abstract socket of that name. The signal is
// sent to the thread alone, so the program's own use of its number is not touched. Threads: none. Errors:
// none.
#pragma once

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace ckpt::local {

inline constexpr const char* kServiceThreadName =
    "gpumigrate-rank";  // 15 bytes: as long as a thread's name can be

inline int reattach_signal() {
  return SIGRTMAX;
}

inline std::string reattach_address(std::uint64_t token) {
  char name[48];
  std::snprintf(name, sizeof name, "@gpumigrate-%016llx", static_cast<unsigned long long>(token));
  return name;
}

}  // namespace ckpt::local
