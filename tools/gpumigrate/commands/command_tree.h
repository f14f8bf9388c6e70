// SPDX-License-Identifier: Apache-2.0
// The commands of the program, and the chosen command. Each family of commands has its own file with a
// function add_..._commands(CommandTree&) (commands.h). The actions that the function adds keep its options
// alive.
// Threads: one. Errors: program.cc reports the errors of parsing; an action returns the program's exit code.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/command_line/command_line.h"
#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

using Action = std::function<int(Context&)>;

class CommandTree {
 public:
  CommandTree(const std::string& about, const std::string& name) : app_(about, name) {}
  CommandTree(const CommandTree&) = delete;
  CommandTree& operator=(const CommandTree&) = delete;

  CommandLine& app() { return app_; }
  // Starts a heading in help for the commands that are added next.
  void begin_family(const std::string& family) { family_ = family; }
  // Adds a command that has subcommands.
  Command add_parent(const std::string& name, const std::string& help) {
    Command added = app_.add_subcommand(name, help);
    added.set_family(family_);
    return added;
  }
  // Adds a command. `action` runs after parsing if the command was given without a subcommand.
  Command add(Command& parent, const std::string& name, const std::string& help, Action action) {
    Command added = parent.add_subcommand(name, help);
    added.set_family(&parent == &app_ ? family_ : "");
    // The first callback determines the action, because callbacks of subcommands run before those of their
    // parents.
    added.on_given([this, action = std::move(action)] {
      if (!chosen_) chosen_ = action;
    });
    return added;
  }
  // Returns the program after `--` and its arguments.
  std::vector<std::string>& program() { return program_; }
  [[nodiscard]] const Action& chosen() const { return chosen_; }

 private:
  CommandLine app_;
  Action chosen_;
  std::string family_;
  std::vector<std::string> program_;
};

// Adds --timeout, which limits only the wait. `what` names the operation that continues after the limit.
inline Option add_wait_limit(Command command, std::string& limit, const std::string& what) {
  return command.add_option("--timeout", limit, "Wait at most this long, like 10m (exit code 124); " + what)
      .called("TIME");
}

}  // namespace ckpt::cli
