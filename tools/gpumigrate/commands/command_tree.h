// SPDX-License-Identifier: Apache-2.0
// The commands of the program, and the one that was chosen. A family of commands stands in a file of its own
// with a function add_..._commands(CommandTree&) (commands.h). The function keeps its options alive in what its
// actions hold.
// Threads: one. Errors: program.cc reports those of parsing; an action returns the program's exit code.
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
  // Help lists the program's commands that are added from now on under this heading.
  void begin_family(const std::string& family) { family_ = family; }
  // A command with others below it.
  Command add_parent(const std::string& name, const std::string& help) {
    Command added = app_.add_subcommand(name, help);
    added.set_family(family_);
    return added;
  }
  // `action` runs after parsing if this command was given, and none below it.
  Command add(Command& parent, const std::string& name, const std::string& help, Action action) {
    Command added = parent.add_subcommand(name, help);
    added.set_family(&parent == &app_ ? family_ : "");
    // Commands below it are told first.
    added.on_given([this, action = std::move(action)] {
      if (!chosen_) chosen_ = action;
    });
    return added;
  }
  // The program after `--` and its arguments.
  std::vector<std::string>& program() { return program_; }
  [[nodiscard]] const Action& chosen() const { return chosen_; }

 private:
  CommandLine app_;
  Action chosen_;
  std::string family_;
  std::vector<std::string> program_;
};

// A limit of the waiting alone. `what`: what goes on without the command.
inline Option add_wait_limit(Command command, std::string& limit, const std::string& what) {
  return command.add_option("--timeout", limit, "Wait no longer than this, like 10m (exit code 124); " + what)
      .called("TIME");
}

}  // namespace ckpt::cli
