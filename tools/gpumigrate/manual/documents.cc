// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/manual/documents.h"

#include <sstream>

#include "libckpt/command_line/help.h"

namespace ckpt::cli {
namespace {

constexpr unsigned kColumns = 110;

// Adds the visible commands to `all`, each command before its subcommands.
void collect(const CommandDescription& command, std::vector<const CommandDescription*>& all) {
  for (const CommandDescription& each : command.commands) {
    if (each.hidden) continue;
    all.push_back(&each);
    collect(each, all);
  }
}

std::vector<const CommandDescription*> all_commands(const CommandDescription& program) {
  std::vector<const CommandDescription*> all;
  collect(program, all);
  return all;
}

// Returns `text` with a "\" before each of `characters`.
std::string escaped(const std::string& text, const char* characters) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(characters).find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string replaced(std::string text, char what, const char* by) {
  std::string out;
  for (const char c : text) {
    if (c == what) {
      out += by;
    } else {
      out += c;
    }
  }
  return out;
}

std::string options_table(const CommandDescription& command) {
  std::string rows;
  for (const OptionDescription& option : command.options) {
    if (option.hidden) continue;
    rows += "| `" + escaped(option_title(option), "|") + "` | " + escaped(option_help(option), "|") + " |\n";
  }
  return rows.empty() ? "" : "| argument, option | meaning |\n|---|---|\n" + rows + "\n";
}

std::string examples_block(const CommandDescription& command) {
  std::string out;
  for (const auto& [line, what] : command.examples) {
    out += "# ";
    out += what;
    out += "\n";
    out += line;
    out += "\n";
  }
  return out.empty() ? "" : "```\n" + out + "```\n\n";
}

std::string section(const CommandDescription& command) {
  std::string out = "### " + command.path + "\n\n" + ckpt::wrapped(command.about + ".", kColumns, 0) + "\n\n";
  out += "`" + usage_line(command) + "`\n\n" + options_table(command) + examples_block(command);
  std::istringstream lines(command.footer);
  for (std::string line; std::getline(lines, line);) out += ckpt::wrapped(line, kColumns, 0) + "\n";
  return command.footer.empty() ? out : out + "\n";
}

// Escapes a line for roff. A dot or quote at its start becomes text, and a hyphen becomes a minus that can be
// copied.
std::string roff(const std::string& text) {
  const std::string out = replaced(escaped(text, "\\"), '-', "\\-");
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

std::string page_name(const CommandDescription& command) {
  return replaced(command.path, ' ', "-");
}

std::string man_options(const std::vector<OptionDescription>& options) {
  std::string out;
  for (const OptionDescription& option : options) {
    if (!option.hidden)
      out += ".TP\n.B " + roff(option_title(option)) + "\n" + roff(option_help(option)) + "\n";
  }
  return out;
}

std::string man_commands(const CommandDescription& command) {
  std::string out;
  for (const CommandDescription& each : command.commands) {
    if (!each.hidden) out += ".TP\n.BR " + roff(page_name(each)) + " (1)\n" + roff(each.about) + "\n";
  }
  return out.empty() ? "" : ".SH COMMANDS\n" + out;
}

std::string man_page(const CommandDescription& command) {
  std::string out = ".TH " + page_name(command) + " 1 \"\" \"gpumigrate " GPUMIGRATE_VERSION "\"\n";
  out += ".SH NAME\n" + roff(page_name(command)) + " \\- " + roff(command.about) + "\n";
  out += ".SH SYNOPSIS\n.B " + roff(usage_line(command)) + "\n" + man_commands(command);
  const std::string options = man_options(command.options) + man_options(command.inherited);
  if (!options.empty()) out += ".SH OPTIONS\n" + options;
  if (!command.footer.empty()) out += ".SH NOTES\n";
  std::istringstream lines(command.footer);
  for (std::string line; std::getline(lines, line);) out += roff(line) + "\n.br\n";
  if (!command.examples.empty()) out += ".SH EXAMPLES\n";
  for (const auto& [line, what] : command.examples) out += ".TP\n.B " + roff(line) + "\n" + roff(what) + "\n";
  return out;
}

void collect_pages(const CommandDescription& command, std::map<std::string, std::string>& pages) {
  if (command.hidden) return;
  pages[page_name(command) + ".1"] = man_page(command);
  for (const CommandDescription& each : command.commands) collect_pages(each, pages);
}

Json definition_of(const OptionDescription& option) {
  return {{"names", option.names},           {"value", option.value},       {"choices", option.choices},
          {"positional", option.positional}, {"required", option.required}, {"repeats", option.repeats}};
}

}  // namespace

std::string cli_page(const CommandDescription& program) {
  std::string out =
      "# Commands\n\n`tools/write-cli-docs` generates this page from the program's own definition. Do not "
      "edit it by hand.\n[usage.md](../usage.md) lists the exit codes. The [cheatsheet](cheatsheet.md) is "
      "one page.\n\nEvery command accepts these options:\n\n| option | meaning |\n|---|---|\n";
  for (const OptionDescription& option : program.options) {
    if (!option.hidden) out += "| `" + option_title(option) + "` | " + option_help(option) + " |\n";
  }
  std::string family;
  for (const CommandDescription* command : all_commands(program)) {
    if (!command->family.empty() && command->family != family) {
      family = command->family;
      out += "\n## " + family + "\n";
    }
    out += "\n" + section(*command);
    out.pop_back();
  }
  return out;
}

std::string cheatsheet_page(const CommandDescription& program) {
  std::string out =
      "# Cheatsheet\n"
      "\n"
      "`tools/write-cli-docs` generates this page from the program's own definition. [cli.md](cli.md) "
      "lists all options.\n";
  std::string family;
  for (const CommandDescription* command : all_commands(program)) {
    if (command->examples.empty()) continue;
    const std::string& name = command->family.empty() ? family : command->family;
    if (name != family) out += "\n## " + name + "\n\n| type | to |\n|---|---|\n";
    family = name;
    for (const auto& [line, what] : command->examples)
      out += "| `" + escaped(line, "|") + "` | " + escaped(what, "|") + " |\n";
  }
  return out;
}

std::map<std::string, std::string> man_pages(const CommandDescription& program) {
  std::map<std::string, std::string> pages;
  collect_pages(program, pages);
  return pages;
}

Json definition(const CommandDescription& command) {
  Json out = {{"path", command.path},
              {"rest", command.rest},
              {"needs_command", command.needs_command},
              {"options", Json::array()},
              {"commands", Json::array()}};
  for (const OptionDescription& option : command.options) out["options"].push_back(definition_of(option));
  for (const CommandDescription& each : command.commands) {
    if (!each.hidden) out["commands"].push_back(definition(each));
  }
  return out;
}

}  // namespace ckpt::cli
