// SPDX-License-Identifier: Apache-2.0
// The commands and options of a program, as plain data. They are the source of help, completion, man pages
// and documents.
// Threads: plain values. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ckpt {

struct OptionDescription {
  std::vector<std::string> names;    // the option's names, such as "-f" and "--follow"; for a positional, one
                                     // name such as "JOB"
  std::string value;                 // the name of the option's value, such as "TIME"; empty for a flag
  std::string help;                  // one line of help
  std::vector<std::string> choices;  // the allowed values; empty if the option accepts other values, too
  std::string range;                 // the allowed range, such as "1 to 64"
  bool positional = false;
  bool required = false;
  bool repeats = false;  // whether the option may be given several times
  bool hidden = false;   // whether help omits the option
  bool greedy = false;   // whether the option accepts all words up to the next option

  [[nodiscard]] bool takes_value() const { return positional || !value.empty(); }
  [[nodiscard]] bool is_named(const std::string& name) const;
};

struct CommandDescription {
  std::string path;    // the full name of the command, such as "gpumigrate local up"
  std::string about;   // a description of one line
  std::string family;  // the heading under which help lists the command
  std::string rest;    // the text after the options: "-- PROGRAM [ARGUMENT...]"
  std::string footer;
  std::vector<std::pair<std::string, std::string>> examples;  // command lines, each with its description
  std::vector<OptionDescription> options;    // the options, in the order of their declaration
  std::vector<OptionDescription> inherited;  // the options of the parent commands
  std::vector<CommandDescription> commands;
  bool needs_command = false;
  bool hidden = false;  // whether help omits the command

  // Returns the last word of the path, such as "up" for "gpumigrate local up".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] const CommandDescription* find(const std::string& command) const;
  // Returns an option of this command or of its parents. Returns null if there is none.
  [[nodiscard]] const OptionDescription* option(const std::string& name) const;
};

}  // namespace ckpt
