// SPDX-License-Identifier: Apache-2.0
// Completion in shells. The shells' scripts call the program for each word, because the program knows its
// options and the names in the cluster.
// Threads: pure functions. Errors: none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libckpt/command_line/description.h"

namespace ckpt::cli {

// A function that returns the cluster's names for a kind of value, such as JOB.
using NamesOf = std::function<std::vector<std::string>(const std::string& value)>;

// Completes the last of `words`. Returns lines for the shell. Each line is a candidate, or a candidate, a tab
// and its meaning. The single line ":file" requests file names.
std::vector<std::string> completions(const CommandDescription& program, const std::vector<std::string>& words,
                                     const NamesOf& names_of);

// Returns the script for bash, zsh or fish.
std::string completion_script(const std::string& shell);

}  // namespace ckpt::cli
