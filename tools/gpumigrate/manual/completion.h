// SPDX-License-Identifier: Apache-2.0
// Completion in shells. The scripts ask the program for each word, so that they know what it takes and what
// the cluster has. Pure. Errors: none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libckpt/command_line/description.h"

namespace ckpt::cli {

// The names that the cluster has for a kind of value, such as JOB.
using NamesOf = std::function<std::vector<std::string>(const std::string& value)>;

// Lines for the shell: a candidate, or a candidate, a tab and what it means. The last of `words` is to be
// completed. ":file" alone: names of files.
std::vector<std::string> completions(const CommandDescription& program, const std::vector<std::string>& words,
                                     const NamesOf& names_of);

// The script for bash, zsh or fish.
std::string completion_script(const std::string& shell);

}  // namespace ckpt::cli
