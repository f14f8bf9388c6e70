// SPDX-License-Identifier: Apache-2.0
// The commands and options of a program, as plain data: the source of help, completion, man pages, documents.
// Threads: values. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ckpt {

struct OptionDescription {
  std::vector<std::string> names;    // "-f", "--follow"; of a positional one name, such as "JOB"
  std::string value;                 // what its value is called, such as "TIME"; of a flag empty
  std::string help;                  // one line
  std::vector<std::string> choices;  // if it takes no other values
  std::string range;                 // such as "1 to 64"
  bool positional = false;
  bool required = false;
  bool repeats = false;  // may be given several times
  bool hidden = false;   // help does not show it
  bool greedy = false;   // takes all words up to the next option

  [[nodiscard]] bool takes_value() const { return positional || !value.empty(); }
  [[nodiscard]] bool is_named(const std::string& name) const;
};

struct CommandDescription {
  std::string path;    // "gpumigrate local up"
  std::string about;   // one line
  std::string family;  // the heading that lists it
  std::string rest;    // what stands after the options: "-- PROGRAM [ARGUMENT...]"
  std::string footer;
  std::vector<std::pair<std::string, std::string>> examples;  // a command line, and what it does
  std::vector<OptionDescription> options;                     // in the order of their declaration
  std::vector<OptionDescription> inherited;                   // those of the commands above
  std::vector<CommandDescription> commands;
  bool needs_command = false;
  bool hidden = false;  // help does not show it

  // "up" of "gpumigrate local up".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] const CommandDescription* find(const std::string& command) const;
  // One of its own or of the commands above; null: there is none.
  [[nodiscard]] const OptionDescription* option(const std::string& name) const;
};

}  // namespace ckpt
