// SPDX-License-Identifier: Apache-2.0
// The command line of a program: CLI11 behind a plain interface, so that only one source compiles CLI11.
// Command and Option are handles of what a CommandLine owns; copies mean the same command or option.
// Names are CLI11's ("--name", "-f,--follow", a positional without dashes). A value is never empty: an empty
// one is a mistake, since it mostly is a variable that is unset.
//
// Threads: one. Ownership: a variable that an option fills outlives the parsing. Errors: parse() returns why
// the program should end; a wrong declaration (a name twice) throws and is a mistake of the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/command_line/description.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace ckpt {

struct OptionFacts;

class Option {
 public:
  Option(CLI::Option* option, OptionFacts* facts) : option_(option), facts_(facts) {}

  // Sets the name of the value in help. The default is the option's name, or NUMBER.
  Option called(const std::string& value);
  Option required();
  // The value lies between both, which it may be. T: int, unsigned, std::uint64_t or double.
  template <class T>
  Option in_range(T least, T most);
  Option one_of(const std::vector<std::string>& values);
  Option positive();
  Option not_negative();
  // Not together with the other.
  Option excludes(Option other);
  // Only together with the other.
  Option needs(Option other);
  // A list takes one value each time that the option is given.
  Option one_value_each();
  // A list's values stand in one argument, separated by this character.
  Option separated_by(char delimiter);
  // --help does not show it.
  Option hidden();
  // --help shows the value that the variable holds now.
  Option shows_default();
  [[nodiscard]] bool is_given() const;

 private:
  CLI::Option* option_;
  OptionFacts* facts_;
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // T: std::string, int, unsigned, std::uint64_t or double; an optional or a vector of one of them.
  template <class T>
  Option add_option(const std::string& name, T& variable, const std::string& help = {});
  Option add_flag(const std::string& name, bool& variable, const std::string& help = {});
  void add_version_flag(const std::string& name, const std::string& version);
  Command add_subcommand(const std::string& name, const std::string& help);
  [[nodiscard]] std::optional<Command> find_subcommand(const std::string& name);
  // One subcommand has to be given.
  void require_subcommand();
  // A subcommand's unknown options may be the command's own.
  void pass_unknown_options_up();
  void set_footer(const std::string& text);
  // The heading under which help lists it.
  void set_family(const std::string& family);
  // Help shows it after the options, such as "-- PROGRAM".
  void set_rest(const std::string& rest);
  void add_example(const std::string& line, const std::string& what);
  // Help does not show it.
  void hide();
  // Describes the command and, recursively, its subcommands.
  [[nodiscard]] CommandDescription describe() const;
  // Called by parse() when the command was given.
  void on_given(std::function<void()> action);
  [[nodiscard]] bool is_given() const;

 protected:
  CLI::App* app_;
};

// Why a program ends after parsing its command line.
struct ParseEnd {
  int exit_code = 0;     // CLI11's; 0 after --help or --version
  std::string message;   // of a mistake, without a line's end
  bool surplus = false;  // the mistake: arguments that no command takes
  bool bare = false;     // no command was given where one has to be; `out` has the help
  std::string out;       // what belongs on standard output
  std::string err;       // what belongs on standard error

  [[nodiscard]] bool is_mistake() const { return exit_code != 0; }
  // Prints both texts and returns the exit code.
  int print(std::ostream& to_out, std::ostream& to_err) const;
  [[nodiscard]] int print() const;
};

class CommandLine : public Command {
 public:
  explicit CommandLine(const std::string& about, const std::string& name = {});
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // How wide help may be; otherwise as wide as the terminal of standard output.
  void set_columns(unsigned columns) { columns_ = columns; }
  // Fills the variables. Nothing: the program goes on.
  [[nodiscard]] std::optional<ParseEnd> parse(int argc, const char* const* argv);
  // Without the program's name.
  [[nodiscard]] std::optional<ParseEnd> parse(std::vector<std::string> arguments);

 private:
  [[nodiscard]] unsigned columns() const;

  std::unique_ptr<CLI::App> owned_;
  unsigned columns_ = 0;
};

}  // namespace ckpt
