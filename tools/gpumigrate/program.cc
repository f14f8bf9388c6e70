// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/program.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "libckpt/command_line/command_line.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/policy_test.h"
#include "tools/gpumigrate/commands/rebalance_commands.h"
#include "tools/gpumigrate/machine_options.h"

namespace ckpt::cli {
namespace {

class Parser {
 public:
  Parser()
      : tree_("Moves running GPU jobs from one GPU to another. `gpumigrate COMMAND --help` tells more.",
              "gpumigrate"),
        app_(tree_.app()) {
    app_.require_subcommand();
    app_.pass_unknown_options_up();
    app_.add_option("-o,--output", form_, "table or json").one_of({"table", "json"});
    add_machine_commands(tree_);
    add_job_commands(tree_);
    add_migration_commands(tree_);
    add_image_commands(tree_);
    add_cluster_commands(tree_);
    add_policy_test(tree_);
    add_rebalance_commands(tree_);
    add_drain_commands(tree_);
    add_recovery_commands(tree_);
    add_policy_commands(tree_);
    add_backup_commands(tree_);
  }

  // 0 and an action, or the exit code after having said why.
  int parse(std::vector<std::string> arguments, std::ostream& out, std::ostream& err) {
    const auto separator = std::find(arguments.begin(), arguments.end(), "--");
    if (separator != arguments.end()) {
      tree_.program().assign(separator + 1, arguments.end());
      arguments.erase(separator, arguments.end());
    }
    if (const auto end = app_.parse(std::move(arguments))) {
      if (!end->is_mistake()) return end->print(out, out);
      const bool program = is_run() && end->surplus;
      err << "gpumigrate: " << end->message
          << (program ? "; name the program after --\n" : " (see gpumigrate --help)\n");
      return kUsage;
    }
    if (!tree_.program().empty() && !is_run()) {
      err << "gpumigrate: only `run` takes a program after --\n";
      return kUsage;
    }
    return kDone;
  }
  [[nodiscard]] const Action& action() const { return tree_.chosen(); }
  // Whether `run` was given.
  [[nodiscard]] bool is_run() {
    const auto run = app_.find_subcommand("run");
    return run && run->is_given();
  }
  [[nodiscard]] bool json() const { return form_ == "json"; }

 private:
  CommandTree tree_;
  CommandLine& app_;
  std::string form_ = "table";
};

}  // namespace

std::string default_home() {
  const char* home = std::getenv("GPUMIGRATE_HOME");
  if (home != nullptr && *home != '\0') return std::filesystem::absolute(home).lexically_normal();
  const char* user = std::getenv("HOME");
  return std::string(user == nullptr ? "/root" : user) + "/.local/share/gpumigrate";
}

int run_program(const std::vector<std::string>& arguments, Context& context) {
  Parser parser;
  const int parsed = parser.parse(arguments, context.out, context.err);
  if (parsed != kDone || !parser.action()) return parsed;
  context.json = parser.json();
  try {
    return parser.action()(context);
  } catch (const std::exception& error) {
    // What a library throws on an answer of another form than docs/api.md gives.
    context.note(std::string("unexpected answer of the coordinator: ") + error.what());
    return kUnknown;
  }
}

}  // namespace ckpt::cli
