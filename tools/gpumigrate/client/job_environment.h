// SPDX-License-Identifier: Apache-2.0
// The environment that `run` sends with a job. It has the shell's variables that programs need, except names
// that suggest secrets, and the variables that the user names. It is stored with the job: in the store,
// records, images.
// Threads: pure, except that it reads the environment and a file. Errors: kInvalidArgument for a text that is
// not a variable or names one that is not set; those of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

struct EnvironmentOptions {
  std::vector<std::string> variables;  // NAME=VALUE, or NAME for the shell's value
  std::string file;                    // a file with one such text on each line; empty: none
  bool all = false;                    // send the shell's whole environment
};

// True for a variable that is sent by default.
[[nodiscard]] bool is_sent_by_itself(std::string_view name);
// Joins the shell's variables, the file's and the named ones. A later one replaces an earlier one.
Result<Json> job_environment(const EnvironmentOptions& options);

}  // namespace ckpt::cli
