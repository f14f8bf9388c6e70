// SPDX-License-Identifier: Apache-2.0
// The environment that `run` sends with a job. Of the shell's own it has what programs need, without names that tell of
// secrets; the user names more. It is stored wherever the job is: the store, records, images.
// Threads: pure but for reading the environment and a file. Errors: kInvalidArgument for what is no variable or is not
// set, and those of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

struct EnvironmentOptions {
  std::vector<std::string> variables;  // NAME=VALUE, or NAME for the shell's value
  std::string file;                    // lines of that kind; empty: none
  bool all = false;                    // of the shell's
};

// Sent without being asked for.
[[nodiscard]] bool is_sent_by_itself(std::string_view name);
// A later one replaces an earlier one: the shell's, the file's, the named ones.
Result<Json> job_environment(const EnvironmentOptions& options);

}  // namespace ckpt::cli
