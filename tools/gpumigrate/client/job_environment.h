// SPDX-License-Identifier: Apache-2.0
// The environment that `run` sends with a job. It contains the shell's variables that programs need, except
// names that suggest secrets, and the variables that the user names. It is stored with the job: in the store,
// records and images.
// Threads: pure, except that it reads the environment and a file. Errors: kInvalidArgument for a text that is
// not a variable, or that names an unset variable; those of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

struct EnvironmentOptions {
  std::vector<std::string> variables;  // NAME=VALUE, or NAME for the shell's value
  std::string file;                    // a file with one variable on each line, in the same form; empty: none
  bool all = false;                    // true: sends the shell's whole environment
};

// Returns whether `run` sends the variable by default.
[[nodiscard]] bool is_sent_by_itself(std::string_view name);
// Joins the variables of the shell, those of the file and the named ones. A later value replaces an earlier
// one.
Result<Json> job_environment(const EnvironmentOptions& options);

}  // namespace ckpt::cli
