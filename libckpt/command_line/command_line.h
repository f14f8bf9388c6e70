// SPDX-License-Identifier: Apache-2.0
// The command line of a program: CLI11 behind a plain interface, so that only one source compiles CLI11.
// Command and Option are handles to objects that a CommandLine owns; copies refer to the same command or
// option. Names are CLI11's ("--name", "-f,--follow", a positional without dashes). A value is never empty.
// An empty value is a mistake, since it usually comes from an unset variable.
//
// Threads: one. Ownership: a variable that an option fills must outlive the parsing. Errors: parse() returns
// why the program should end. A wrong declaration (a repeated name) throws and is a mistake of the caller.
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

  // Sets the name of the value in help. The default is the option's name, or NUMBER for an option that takes
  // a number.
  Option called(const std::string& value);
  Option required();
  // Requires a value from `min` to `max`, inclusive. T: int, unsigned, std::uint64_t or double.
  template <class T>
  Option in_range(T min, T max);
  Option one_of(const std::vector<std::string>& values);
  Option positive();
  Option not_negative();
  // Forbids this option together with the other.
  Option excludes(Option other);
  // Requires the other option together with this one.
  Option needs(Option other);
  // Limits a list to one value each time that the option is given.
  Option one_value_each();
  // Reads a list's values from one argument, in which this character separates them.
  Option separated_by(char delimiter);
  // Hides the option from --help.
  Option hidden();
  // Makes --help show the variable's current value.
  Option shows_default();
  [[nodiscard]] bool is_given() const;

 private:
  CLI::Option* option_;
  OptionFacts* facts_;
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // Adds an option. T is std::string, int, unsigned, std::uint64_t or double, or an optional or a vector of
  // one of them.
  template <class T>
  Option add_option(const std::string& name, T& variable, const std::string& help = {});
  Option add_flag(const std::string& name, bool& variable, const std::string& help = {});
  void add_version_flag(const std::string& name, const std::string& version);
  Command add_subcommand(const std::string& name, const std::string& help);
  [[nodiscard]] std::optional<Command> find_subcommand(const std::string& name);
  // Requires exactly one subcommand.
  void require_subcommand();
  // Lets a subcommand pass unknown options to this command.
  void pass_unknown_options_up();
  void set_footer(const std::string& text);
  // Sets the heading under which help lists the command.
  void set_family(const std::string& family);
  // Sets the text that help shows after the options, such as "-- PROGRAM".
  void set_rest(const std::string& rest);
  void add_example(const std::string& line, const std::string& what);
  // Hides the command from help.
  void hide();
  // Describes the command and, recursively, its subcommands.
  [[nodiscard]] CommandDescription describe() const;
  // Sets a function that parse() calls when the command was given.
  void on_given(std::function<void()> action);
  [[nodiscard]] bool is_given() const;

 protected:
  CLI::App* app_;
};

// The reason why a program ends after parsing its command line.
struct ParseEnd {
  int exit_code = 0;     // CLI11's exit code; 0 after --help or --version
  std::string message;   // the message of a mistake, without a line end
  bool surplus = false;  // whether the mistake is that there are arguments that no command accepts
  bool bare = false;     // whether no command was given although one is required; `out` then has the help
  std::string out;       // the text for standard output
  std::string err;       // the text for standard error

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

  // Sets the width of help. The default is the width of the terminal of standard output.
  void set_columns(unsigned columns) { columns_ = columns; }
  // Parses the arguments and fills the variables. Returns nullopt if the program should continue.
  [[nodiscard]] std::optional<ParseEnd> parse(int argc, const char* const* argv);
  // Parses arguments that do not include the program's name.
  [[nodiscard]] std::optional<ParseEnd> parse(std::vector<std::string> arguments);

 private:
  [[nodiscard]] unsigned columns() const;

  std::unique_ptr<CLI::App> owned_;
  unsigned columns_ = 0;
};

}  // namespace ckpt
