// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/manual/manual_commands.h"

#include <unistd.h>

#include "libckpt/command_line/help.h"
#include "libckpt/command_line/mistakes.h"

namespace ckpt::cli {
namespace {

int show_help(Context& context, const CommandDescription& program, const std::vector<std::string>& words) {
  const CommandDescription* command = &program;
  for (const std::string& word : words) {
    const CommandDescription* below = command->find(word);
    if (below == nullptr) {
      std::vector<std::string> names;
      for (const CommandDescription& each : command->commands) names.push_back(each.name());
      return report(context,
                    Error(ErrorCode::kInvalidArgument, "there is no command " + quoted(word) + " of `" +
                                                           command->path + "`" + suggestion(word, names)));
    }
    command = below;
  }
  context.out << help_text(*command, terminal_columns(STDOUT_FILENO)) << std::flush;
  return kDone;
}

}  // namespace

void add_manual_commands(CommandTree& tree) {
  tree.begin_family("This machine");
  const auto words = std::make_shared<std::vector<std::string>>();
  tree.add(tree.app(), "help", "Explain a command",
           [&tree, words](Context& c) { return show_help(c, tree.app().describe(), *words); })
      .add_option("command", *words, "Its name; otherwise all commands are listed");
}

}  // namespace ckpt::cli
