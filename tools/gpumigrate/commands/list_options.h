// SPDX-License-Identifier: Apache-2.0
// Declares a command that prints a list (screens/lists.h), with the common options of lists.
// Threads: one. Errors: a wrong declaration throws, because it is a bug of the caller.
#pragma once

#include <string>

#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/screens/lists.h"

namespace ckpt::cli {

// The help texts of a list's options. An empty text means that the list has no such option.
struct ListHelp {
  std::string all{};
  std::string node{};
  std::string state{};
  std::string name{};
};

Command add_list(CommandTree& tree, const std::string& command, const std::string& help,
                 AskList (*list)(const ListOptions&), const ListHelp& options);

}  // namespace ckpt::cli
