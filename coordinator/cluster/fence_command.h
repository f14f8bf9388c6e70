// SPDX-License-Identifier: Apache-2.0
// The operator's program that proves that a node is down (`fence_command`). It is run with the node's name,
// and cuts the power or queries another authority. It exits with 0 once nothing of that node runs. Its output
// is added to the coordinator's output.
// Threads: the caller's loop. Ownership: the process is killed at its deadline. Errors: kIo (not started),
// kTimedOut, kRefused with its exit status.
#pragma once

#include <chrono>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

inline constexpr std::chrono::seconds kFenceDeadline{120};

control::Task<Result<void>> run_fence_command(std::string program, std::string node,
                                              std::chrono::milliseconds deadline = kFenceDeadline);

}  // namespace ckpt::coordinator
