// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/manual/manual_commands.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "libckpt/command_line/help.h"
#include "libckpt/command_line/mistakes.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/manual/completion.h"
#include "tools/gpumigrate/manual/documents.h"

namespace ckpt::cli {
namespace {

int show_help(Context& context, const CommandDescription& program, const std::vector<std::string>& words) {
  const CommandDescription* command = &program;
  for (const std::string& word : words) {
    const CommandDescription* below = command->find(word);
    if (below == nullptr) {
      std::vector<std::string> names;
      for (const CommandDescription& each : command->commands) names.push_back(each.name());
      return report(context, Error(ErrorCode::kInvalidArgument, "`" + command->path + "` has no command " +
                                                                    quoted(word) + suggestion(word, names)));
    }
    command = below;
  }
  context.out << help_text(*command, terminal_columns(STDOUT_FILENO)) << std::flush;
  return kDone;
}

// The limit for the coordinator's answer, so that a shell does not hang while it completes a word.
constexpr std::chrono::milliseconds kCompletionDeadline{1000};

// The path of a list of the coordinator, and the field with the name.
struct Source {
  const char* path;
  const char* field;
};

std::vector<std::string> names_at(Context& context, const Source& source) {
  const auto list = context.coordinator.get(source.path, kCompletionDeadline);
  std::vector<std::string> names;
  if (!list) return names;
  for (const Json& item : *list) {
    const std::string state = text_of(item, "state");
    const bool over = state == "exited" || state == "failed" || state == "lost" || state == "closed";
    const std::string name = text_of(item, source.field);
    if (!over && name.find_first_of(" \t\n") == std::string::npos) names.push_back(printable(name));
  }
  return names;
}

std::vector<std::string> names_of(Context& context, const std::string& value) {
  static const std::map<std::string, std::vector<Source>> sources = {
      {"JOB", {{"/v1/jobs", "name"}}},
      {"JOB-OR-IMAGE", {{"/v1/jobs", "name"}, {"/v1/images", "id"}}},
      {"IMAGE", {{"/v1/images", "id"}}},
      {"MIGRATION", {{"/v1/migrations", "id"}}},
      {"DRAIN", {{"/v1/drains", "id"}}},
      {"NODE", {{"/v1/nodes", "name"}}},
      {"NODE-OR-FOLDER", {{"/v1/nodes", "name"}}},
      {"PLACE", {{"/v1/nodes", "name"}}}};
  std::vector<std::string> names;
  const auto found = sources.find(value);
  if (found == sources.end()) return names;
  for (const Source& source : found->second) {
    const auto more = names_at(context, source);
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

int complete(Context& context, const CommandDescription& program, const std::vector<std::string>& words) {
  const auto ask = [&](const std::string& value) { return names_of(context, value); };
  for (const std::string& line : completions(program, words, ask)) context.out << line << "\n";
  return kDone;
}

int write_man_pages(Context& context, const CommandDescription& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [name, text] : man_pages(program)) {
    std::ofstream file(folder + "/" + name);
    file << text << std::flush;
    if (!file) return report(context, Error(ErrorCode::kIo, "Cannot write " + folder + "/" + name), kFailed);
  }
  return kDone;
}

struct ManualOptions {
  std::string form;
  std::string folder = ".";
};

int print_manual(Context& context, const CommandDescription& program, const ManualOptions& options) {
  if (options.form == "man") return write_man_pages(context, program, options.folder);
  if (options.form == "definition") {
    context.print(definition(program));
  } else {
    context.out << (options.form == "cli" ? cli_page(program) : cheatsheet_page(program)) << std::flush;
  }
  return kDone;
}

// Adds commands for scripts, which help does not show.
void add_hidden(CommandTree& tree) {
  const auto o = std::make_shared<ManualOptions>();
  Command manual =
      tree.add(tree.app(), "__manual", "Print documents that are generated from the program's definition",
               [&tree, o](Context& c) { return print_manual(c, tree.app().describe(), *o); });
  manual.add_option("form", o->form, "Name of the document")
      .required()
      .one_of({"cli", "cheatsheet", "man", "definition"});
  manual.add_option("folder", o->folder, "Folder for the man pages");
  manual.hide();
  Command words = tree.add(tree.app(), "__complete", "Complete the last word", [&tree](Context& c) {
    return complete(c, tree.app().describe(), tree.program());
  });
  words.set_rest("-- WORD...");
  words.hide();
}

}  // namespace

void add_manual_commands(CommandTree& tree) {
  tree.begin_family("This machine");
  const auto words = std::make_shared<std::vector<std::string>>();
  tree.add(tree.app(), "help", "Explain a command",
           [&tree, words](Context& c) { return show_help(c, tree.app().describe(), *words); })
      .add_option("command", *words, "Name of the command; without it all commands are listed");
  const auto shell = std::make_shared<std::string>();
  Command completion =
      tree.add(tree.app(), "completion", "Print the completion script of a shell", [shell](Context& c) {
        c.out << completion_script(*shell);
        return kDone;
      });
  completion.add_option("shell", *shell, "The shell: bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"});
  completion.add_example("source <(gpumigrate completion bash)",
                         "Complete commands, options, jobs and nodes");
  add_hidden(tree);
}

}  // namespace ckpt::cli
