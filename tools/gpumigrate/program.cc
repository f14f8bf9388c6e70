// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/program.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "libckpt/command_line/command_line.h"
#include "libckpt/command_line/mistakes.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/policy_test.h"
#include "tools/gpumigrate/commands/rebalance_commands.h"
#include "tools/gpumigrate/machine_options.h"
#include "tools/gpumigrate/manual/manual_commands.h"

namespace ckpt::cli {
namespace {

// Returns whether errors are printed as JSON. It runs before parsing, which may fail.
bool asks_for_json(const std::vector<std::string>& arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  for (auto at = arguments.begin(); at != end; ++at) {
    if (*at == "-ojson" || *at == "-o=json" || *at == "--output=json") return true;
    if ((*at == "-o" || *at == "--output") && at + 1 != end && *(at + 1) == "json") return true;
  }
  return false;
}

int wrong(Context& context, const std::string& message) {
  return report(context, Error(ErrorCode::kInvalidArgument, message));
}

class Parser {
 public:
  Parser()
      : tree_("Moves running GPU jobs from one GPU to another. `gpumigrate help COMMAND` explains a command.",
              "gpumigrate"),
        app_(tree_.app()) {
    app_.require_subcommand();
    app_.pass_unknown_options_up();
    app_.add_version_flag("--version", "gpumigrate " GPUMIGRATE_VERSION);
    app_.add_option("-o,--output", form_, "Output format: table, wide (a table with all columns) or json")
        .called("FORM")
        .one_of({"table", "wide", "json"});
    app_.add_option("--color", color_,
                    "Show colors: auto (on a terminal, unless NO_COLOR is set), always or never")
        .called("WHEN")
        .one_of({"auto", "always", "never"});
    add_job_commands(tree_);
    add_migration_commands(tree_);
    add_image_commands(tree_);
    add_cluster_commands(tree_);
    add_drain_commands(tree_);
    add_rebalance_commands(tree_);
    add_recovery_commands(tree_);
    add_certificate_commands(tree_);
    add_join_commands(tree_);
    add_denial_commands(tree_);
    add_backup_commands(tree_);
    add_policy_test(tree_);
    add_policy_commands(tree_);
    add_machine_commands(tree_);
    add_manual_commands(tree_);
  }

  // Parses the arguments and chooses an action. Returns kDone, or the exit code if the command line is wrong
  // or requests help.
  int parse(std::vector<std::string> arguments, Context& context) {
    const auto separator = std::find(arguments.begin(), arguments.end(), "--");
    if (separator != arguments.end()) {
      tree_.program().assign(separator + 1, arguments.end());
      arguments.erase(separator, arguments.end());
    }
    const CommandDescription program = app_.describe();
    const CommandDescription& command = named_command(program, arguments).command;
    if (const auto end = app_.parse(std::move(arguments))) {
      context.out << end->out << std::flush;
      if (end->bare || !end->is_mistake()) return end->bare ? kUsage : kDone;
      const bool program_misplaced = end->surplus && command.name() == "run";
      return wrong(context, end->message + (program_misplaced ? "; name the program after --" : ""));
    }
    if (!tree_.program().empty() && command.rest.empty())
      return wrong(context, "only `run` accepts a program after --");
    return kDone;
  }
  [[nodiscard]] const Action& action() const { return tree_.chosen(); }
  void choose_form(Context& context) const {
    context.json = form_ == "json";
    context.wide = form_ == "wide";
    if (color_ != "auto") context.screen.colour = color_ == "always";
  }

 private:
  CommandTree tree_;
  CommandLine& app_;
  std::string form_ = "table";
  std::string color_ = "auto";
};

int run_parsed(const std::vector<std::string>& arguments, Context& context) {
  context.json = asks_for_json(arguments);
  Parser parser;
  const int parsed = parser.parse(arguments, context);
  if (parsed != kDone || !parser.action()) return parsed;
  parser.choose_form(context);
  return parser.action()(context);
}

}  // namespace

std::string default_home() {
  const char* home = std::getenv("GPUMIGRATE_HOME");
  if (home != nullptr && *home != '\0') return std::filesystem::absolute(home).lexically_normal();
  const char* user = std::getenv("HOME");
  return std::string(user == nullptr ? "/root" : user) + "/.local/share/gpumigrate";
}

int run_program(const std::vector<std::string>& arguments, Context& context) {
  context.out.exceptions(std::ios::badbit);  // output errors must throw, because a reader must know that the
                                             // output is incomplete
  try {
    const int code = run_parsed(arguments, context);
    context.out.flush();
    return code;
  } catch (const std::ios_base::failure&) {
    context.out.exceptions(std::ios::goodbit);
    return report(
        context,
        Error(ErrorCode::kIo, "Cannot write to standard output; operations that have begun continue"),
        kFailed);
  } catch (const std::exception& error) {
    // Libraries throw such an exception if an answer does not have the form that docs/api.md defines.
    return report(context, Error(ErrorCode::kProtocol,
                                 std::string("The coordinator sent an unexpected answer: ") + error.what()));
  }
}

}  // namespace ckpt::cli
