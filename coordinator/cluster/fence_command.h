// SPDX-License-Identifier: Apache-2.0
// The operator's own program that proves a node dead (`fence_command`). It is run with the node's name and
// cuts the power or asks another authority. It ends with 0 once nothing of that node runs. Its output goes to
// the coordinator's.
// Threads: the caller's loop. Ownership: the process is killed with its deadline. Errors: kIo (not started),
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
