// SPDX-License-Identifier: Apache-2.0
// A program in a PID namespace of its own, as a keeper starts it. Its output goes to its log.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Starts gpumigrate-init with `argv` in `folder` and returns the init's process id. Output goes to `log`.
Result<pid_t> start_program(const std::vector<std::string>& argv, const std::string& folder,
                            const std::string& log);

// Blocks until a line of the log begins with `start`, and returns the line. Returns an empty string after a
// minute without such a line, or when `alive` has ended.
std::string wait_for_line(const std::string& log, const std::string& start, pid_t alive);

// Blocks until the child `init` has ended, reaps it, and returns the program's wait status.
int wait_for_end(pid_t init);

// Returns the state letter of /proc/PID/stat; 'X' if the file does not exist.
char process_state(pid_t pid);

}  // namespace ckpt::agent::host
