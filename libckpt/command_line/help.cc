// SPDX-License-Identifier: Apache-2.0
#include "libckpt/command_line/help.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace ckpt {
namespace {

constexpr unsigned kDefaultColumns = 80;
constexpr unsigned kMinColumns = 20;
constexpr std::size_t kWidestTitle = 24;  // the maximum width of a title in columns; a longer title has its
                                          // help on the next line

using Row = std::pair<std::string, std::string>;

// Returns the number of columns that the text has on a terminal. Every code point of UTF-8 counts as one.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string blanks(std::size_t count) {
  return std::string(count, ' ');
}

std::string joined(const std::vector<std::string>& texts, const char* between) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : between) + text;
  return out;
}

// Returns the heading and the rows in two columns: titles and their help. A title wider than kWidestTitle has
// its help on the next line.
std::string rows_text(const std::string& heading, const std::vector<Row>& rows, unsigned columns) {
  if (rows.empty()) return {};
  std::size_t title = 0;
  for (const Row& row : rows) title = std::max(title, std::min(width_of(row.first), kWidestTitle));
  const auto start = static_cast<unsigned>(std::min<std::size_t>(title + 4, columns / 2));
  std::string out = "\n" + heading + ":\n";
  for (const auto& [name, help] : rows) {
    const bool beside = width_of(name) + 4 <= start;
    out += "  " + name + (beside ? blanks(start - 2 - width_of(name)) : "\n" + blanks(start));
    out += wrapped(help, columns, start) + "\n";
  }
  return out;
}

std::vector<Row> option_rows(const std::vector<OptionDescription>& options, bool positional) {
  std::vector<Row> rows;
  for (const OptionDescription& option : options) {
    if (option.positional == positional && !option.hidden)
      rows.emplace_back(option_title(option), option_help(option));
  }
  return rows;
}

std::string commands_text(const CommandDescription& command, unsigned columns) {
  std::vector<std::string> families;
  for (const CommandDescription& each : command.commands) {
    if (!each.hidden && std::find(families.begin(), families.end(), each.family) == families.end())
      families.push_back(each.family);
  }
  std::string out;
  for (const std::string& family : families) {
    std::vector<Row> rows;
    for (const CommandDescription& each : command.commands) {
      if (!each.hidden && each.family == family) rows.emplace_back(each.name(), each.about);
    }
    out += rows_text(family.empty() ? "Commands" : family, rows, columns);
  }
  return out;
}

std::string paragraphs(const std::string& text, unsigned columns, unsigned indent) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += wrapped(line, columns, indent) + "\n";
  return out;
}

}  // namespace

unsigned terminal_columns(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= kMinColumns) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  unsigned columns = 0;
  if (given != nullptr) std::from_chars(given, given + std::strlen(given), columns);
  return columns >= kMinColumns ? columns : kDefaultColumns;
}

std::string wrapped(const std::string& text, unsigned columns, unsigned indent) {
  std::istringstream words(text);
  std::string out;
  std::size_t used = indent;
  for (std::string word; words >> word;) {
    const std::size_t width = width_of(word);
    if (!out.empty() && used + 1 + width > columns) {
      out += "\n" + blanks(indent);
      used = indent;
    } else if (!out.empty()) {
      out += " ";
      ++used;
    }
    out += word;
    used += width;
  }
  return out;
}

std::string usage_line(const CommandDescription& command) {
  std::string out = command.path;
  for (const OptionDescription& option : command.options) {
    if (!option.positional) continue;
    const std::string name = option.names.front() + (option.repeats ? "..." : "");
    out += option.required ? " " + name : " [" + name + "]";
  }
  for (const OptionDescription& option : command.options) {
    if (!option.positional && option.required) out += " " + option.names.back() + " " + option.value;
  }
  if (!command.commands.empty()) out += command.needs_command ? " COMMAND" : " [COMMAND]";
  if (!command.options.empty() || !command.inherited.empty()) out += " [OPTIONS]";
  return command.rest.empty() ? out : out + " " + command.rest;
}

std::string option_title(const OptionDescription& option) {
  std::string out = joined(option.names, ", ");
  if (!option.positional && !option.value.empty()) out += " " + option.value;
  return out;
}

std::string option_help(const OptionDescription& option) {
  std::string out = option.help;
  if (!option.choices.empty() && out.find(option.choices.back()) == std::string::npos)
    out += (out.empty() ? "" : "; ") + joined(option.choices, ", ");
  if (!option.range.empty()) out += (out.empty() ? "" : "; ") + option.range;
  if (option.required && !option.positional) out += (out.empty() ? "" : "; ") + std::string("required");
  return out;
}

std::string help_text(const CommandDescription& command, unsigned columns) {
  std::string out = wrapped(command.about, columns, 0) + "\n\n";
  out += wrapped("Usage: " + usage_line(command), columns, 7) + "\n";
  out += rows_text("Arguments", option_rows(command.options, true), columns);
  out += commands_text(command, columns);
  std::vector<Row> options = option_rows(command.options, false);
  const std::vector<Row> inherited = option_rows(command.inherited, false);
  options.insert(options.end(), inherited.begin(), inherited.end());
  out += rows_text("Options", options, columns);
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const auto& [line, what] : command.examples)
    out += "  " + wrapped(line, columns, 6) + "\n      " + wrapped(what, columns, 6) + "\n";
  if (!command.footer.empty()) out += "\n" + paragraphs(command.footer, columns, 0);
  return out;
}

}  // namespace ckpt
