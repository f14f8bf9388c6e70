// SPDX-License-Identifier: Apache-2.0
// The daemons of a local cluster. Each daemon has its own session. A pid and a start time identify a process,
// because a pid alone may be reused. A pidfd reports when the process exits.
// Threads: one. Errors: kIo, which names the program or the process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::cli {

struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start = 0;  // clock ticks after boot, from /proc/PID/stat

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

struct DaemonSpec {
  std::vector<std::string> argv;         // argv[0] is the path of the program
  std::vector<std::string> environment;  // all variables, as "NAME=VALUE"
  std::string output;                    // standard output and error are appended to this file (0600)
};

// Returns the process's identity, or {0, 0} if there is no such process or only a zombie.
ProcessId identify(pid_t pid);
bool is_alive(const ProcessId& process);

Result<ProcessId> start_daemon(const DaemonSpec& spec);

// Returns a descriptor that becomes readable when the process exits.
Result<UniqueFd> watch_end(const ProcessId& process);

// A function that waits until the descriptor is readable, at most for that time. An error ends the whole
// wait.
using WaitReadable = std::function<Result<void>(int descriptor, std::chrono::milliseconds time)>;

// Sends `signal` to the processes, and waits until all have exited or `patience` is over. Then it kills the
// remaining processes and waits for them. After an error of `wait` it kills none.
Result<void> end_all(const std::vector<ProcessId>& processes, int signal, std::chrono::milliseconds patience,
                     const WaitReadable& wait = {});

// Returns this user's processes whose environment has the entry NAME=VALUE.
std::vector<ProcessId> find_by_environment(const std::string& entry);

// Returns the caller's environment. `additions` replace entries with the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& additions);

// Returns the folder of this program.
Result<std::string> program_folder();

}  // namespace ckpt::cli
