// SPDX-License-Identifier: Apache-2.0
// Daemons of a local cluster, each started in a session of its own. They are known by pid and start time,
// since a pid alone may be reused. They are ended and waited for by pidfd.
// Threads: one. Errors: kIo, naming the program or the process.
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
  std::vector<std::string> argv;         // argv[0]: path of the program
  std::vector<std::string> environment;  // all of it, "NAME=VALUE"
  std::string output;                    // standard output and error are appended to this file (0600)
};

// The process's identity, {0, 0} if there is none (or only a zombie).
ProcessId identify(pid_t pid);
bool is_alive(const ProcessId& process);

Result<ProcessId> start_daemon(const DaemonSpec& spec);

// A descriptor that becomes readable when the process ends.
Result<UniqueFd> watch_end(const ProcessId& process);

// Waits until the descriptor is readable, for that time at most. An error ends the waiting for good.
using WaitReadable = std::function<Result<void>(int descriptor, std::chrono::milliseconds time)>;

// Signals all of them, waits until each has ended or `patience` is over, then kills and waits for what is
// left. An error of `wait` leaves them alone.
Result<void> end_all(const std::vector<ProcessId>& processes, int signal, std::chrono::milliseconds patience,
                     const WaitReadable& wait = {});

// This user's processes whose environment holds NAME=VALUE.
std::vector<ProcessId> find_by_environment(const std::string& entry);

// The caller's environment with `additions` in place of entries of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& additions);

// Where this program is.
Result<std::string> program_folder();

}  // namespace ckpt::cli
