// SPDX-License-Identifier: Apache-2.0
// A program in a PID namespace of its own, as a keeper starts it, and its log as its output.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Starts gpumigrate-init with `argv` in `folder`; output goes to `log`. The init's process id.
Result<pid_t> start_program(const std::vector<std::string>& argv, const std::string& folder,
                            const std::string& log);

// Blocks until a line of the log begins with `start`, and gives it; empty after a minute without one, or when
// `alive` has ended.
std::string wait_for_line(const std::string& log, const std::string& start, pid_t alive);

// Blocks until `pid`, a child, has ended, reaps it, and gives the program's wait status.
int wait_for_end(pid_t init);

// The letter of /proc/PID/stat; 'X' if there is none.
char process_state(pid_t pid);

}  // namespace ckpt::agent::host
