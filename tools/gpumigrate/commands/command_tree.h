// SPDX-License-Identifier: Apache-2.0
// The commands as CLI11 parses them, and the one that was chosen. A family of commands stands in a file of
// its own with a function add_..._commands(CommandTree&) (commands.h). The function keeps its options alive
// in what its actions hold.
// Threads: one. Errors: those of parsing are CLI11's exceptions, caught in program.cc; an action returns the
// program's exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

using Action = std::function<int(Context&)>;

class CommandTree {
 public:
  CommandTree(const std::string& about, const std::string& name) : app_(about, name) {}
  CommandTree(const CommandTree&) = delete;
  CommandTree& operator=(const CommandTree&) = delete;

  CLI::App& app() { return app_; }
  // `action` runs after parsing if this command was given.
  CLI::App* add(CLI::App& parent, const std::string& name, const std::string& help, Action action) {
    CLI::App* added = parent.add_subcommand(name, help);
    added->callback([this, action = std::move(action)] { chosen_ = action; });
    return added;
  }
  [[nodiscard]] const Action& chosen() const { return chosen_; }

 private:
  CLI::App app_;
  Action chosen_;
};

}  // namespace ckpt::cli
