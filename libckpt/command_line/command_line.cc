// SPDX-License-Identifier: Apache-2.0
#include "libckpt/command_line/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <map>
#include <sstream>
#include <type_traits>

#include "libckpt/command_line/help.h"
#include "libckpt/command_line/mistakes.h"

namespace ckpt {

// The properties of an option that CLI11 does not store.
struct OptionFacts {
  std::string value;  // the name of the option's value; empty for a flag
  std::vector<std::string> choices;
  std::string range;
  bool list = false;
  bool greedy = false;
};

namespace {

constexpr int kMistake = 106;  // the exit code of every mistake, which is CLI11's code for a missing argument

struct CommandFacts {
  std::string family;
  std::string rest;
  std::vector<std::pair<std::string, std::string>> examples;
};

// The program's own command, which stores the facts of all commands.
struct Root : CLI::App {
  using CLI::App::App;
  std::map<const CLI::Option*, OptionFacts> options;
  std::map<const CLI::App*, CommandFacts> commands;
};

Root& root_of(CLI::App* app) {
  while (app->get_parent() != nullptr) app = app->get_parent();
  return static_cast<Root&>(*app);
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return text;
}

// Returns the name of the option's value, such as "MEMORY" for --gpu-memory.
std::string value_name(const CLI::Option& option) {
  const std::string& name = option.get_single_name();
  return upper(name.substr(name.rfind('-') + 1));
}

template <class T>
struct ElementOf {
  using Type = T;
};
template <class T>
struct ElementOf<std::optional<T>> {
  using Type = T;
};
template <class T>
struct ElementOf<std::vector<T>> {
  using Type = T;
};

template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string plain(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
template <class T>
std::string plain(T value) {
  return std::to_string(value);
}

// Adds a check that returns the message of a mistake, or an empty string.
template <class Check>
void add_check(CLI::Option* option, Check check) {
  option->check(CLI::Validator([check](std::string& text) { return std::string(check(text)); }, ""));
}

OptionDescription describe_option(const CLI::Option& option, const OptionFacts& facts) {
  OptionDescription out;
  out.positional = option.get_positional();
  if (out.positional) {
    out.names.push_back(facts.value.empty() ? upper(option.get_single_name()) : facts.value);
  } else {
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
    out.value = facts.value;
  }
  out.help = option.get_description();
  out.choices = facts.choices;
  out.range = facts.range;
  out.required = option.get_required();
  out.repeats = facts.list;
  out.greedy = facts.greedy;
  out.hidden = option.get_group().empty();
  return out;
}

std::string path_of(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name() : path_of(app->get_parent()) + " " + app->get_name();
}

CommandDescription describe_command(const CLI::App* app, const Root& root,
                                    std::vector<OptionDescription> inherited) {
  CommandDescription out;
  out.path = path_of(app);
  out.about = app->get_description();
  out.footer = app->get_footer();
  out.hidden = app->get_parent() != nullptr && app->get_group().empty();
  out.needs_command = app->get_require_subcommand_min() > 0;
  if (const auto facts = root.commands.find(app); facts != root.commands.end()) {
    out.family = facts->second.family;
    out.rest = facts->second.rest;
    out.examples = facts->second.examples;
  }
  out.inherited = inherited;
  for (const CLI::Option* option : app->get_options()) {
    const auto facts = root.options.find(option);
    OptionDescription described =
        describe_option(*option, facts == root.options.end() ? OptionFacts{} : facts->second);
    const bool help = option == app->get_help_ptr();
    if (help) described.help = "Print this help";
    (help ? out.inherited : out.options).push_back(described);
    const bool below = !help && !described.positional && option != app->get_version_ptr();
    if (below && app->get_fallthrough()) inherited.push_back(described);
  }
  for (const CLI::App* below : app->get_subcommands([](const CLI::App*) { return true; }))
    out.commands.push_back(describe_command(below, root, inherited));
  return out;
}

}  // namespace

Option Option::called(const std::string& value) {
  facts_->value = value;
  return *this;
}

Option Option::required() {
  option_->required();
  return *this;
}

template <class T>
Option Option::in_range(T min, T max) {
  facts_->range = plain(min) + " to " + plain(max);
  add_check(option_, [min, max, range = facts_->range](const std::string& text) {
    const auto number = number_in<T>(text);
    return number && *number >= min && *number <= max ? "" : quoted(text) + " is not a number from " + range;
  });
  return *this;
}
template Option Option::in_range(int, int);
template Option Option::in_range(unsigned, unsigned);
template Option Option::in_range(std::uint64_t, std::uint64_t);
template Option Option::in_range(double, double);

Option Option::one_of(const std::vector<std::string>& values) {
  facts_->choices = values;
  add_check(option_, [values](const std::string& text) {
    if (std::find(values.begin(), values.end(), text) != values.end()) return std::string();
    std::string all;
    for (const std::string& value : values) all += (all.empty() ? "" : ", ") + value;
    return quoted(text) + " is not one of " + all + suggestion(text, values);
  });
  return *this;
}

Option Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Option Option::excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}

Option Option::needs(Option other) {
  option_->needs(other.option_);
  return *this;
}

Option Option::one_value_each() {
  option_->allow_extra_args(false);
  facts_->greedy = false;
  return *this;
}

Option Option::separated_by(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

Option Option::hidden() {
  option_->group("");
  return *this;
}

Option Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

bool Option::is_given() const {
  return !option_->empty();
}

template <class T>
Option Command::add_option(const std::string& name, T& variable, const std::string& help) {
  using Element = typename ElementOf<T>::Type;
  CLI::Option* option = app_->add_option(name, variable, help);
  OptionFacts& facts = root_of(app_).options[option];
  facts.value = value_name(*option);
  facts.list = facts.greedy = std::is_same_v<T, std::vector<Element>>;
  add_check(option, [](const std::string& text) {
    return text.empty() ? std::string("the value is empty; is a variable unset?") : std::string();
  });
  if constexpr (std::is_arithmetic_v<Element>) {
    if (!option->get_positional()) facts.value = "NUMBER";
    add_check(option, [](const std::string& text) {
      const bool good = number_in<Element>(text).has_value();
      const char* kind = std::is_unsigned_v<Element> ? " is not a number from 0" : " is not a number";
      return good ? std::string()
                  : quoted(text) + kind + (std::is_integral_v<Element> ? " or is too large" : "");
    });
  }
  return Option(option, &facts);
}
template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, unsigned&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<unsigned>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<unsigned>&, const std::string&);

Option Command::add_flag(const std::string& name, bool& variable, const std::string& help) {
  CLI::Option* flag = app_->add_flag(name, variable, help);
  return Option(flag, &root_of(app_).options[flag]);
}

void Command::add_version_flag(const std::string& name, const std::string& version) {
  app_->set_version_flag(name, version, "Print the version of this program");
}

Command Command::add_subcommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}

std::optional<Command> Command::find_subcommand(const std::string& name) {
  const auto found = app_->get_subcommands([&](const CLI::App* app) { return app->get_name() == name; });
  if (found.empty()) return std::nullopt;
  return Command(found.front());
}

void Command::require_subcommand() {
  app_->require_subcommand(1);
}

void Command::pass_unknown_options_up() {
  app_->fallthrough();
}

void Command::set_footer(const std::string& text) {
  app_->footer(text);
}

void Command::set_family(const std::string& family) {
  root_of(app_).commands[app_].family = family;
}

void Command::set_rest(const std::string& rest) {
  root_of(app_).commands[app_].rest = rest;
}

void Command::add_example(const std::string& line, const std::string& what) {
  root_of(app_).commands[app_].examples.emplace_back(line, what);
}

void Command::hide() {
  app_->group("");
}

CommandDescription Command::describe() const {
  std::vector<OptionDescription> inherited;
  for (CLI::App* above = app_->get_parent(); above != nullptr; above = above->get_parent()) {
    const CommandDescription description = Command(above).describe();
    for (const OptionDescription& option : description.options) {
      if (!option.positional && above->get_fallthrough()) inherited.push_back(option);
    }
  }
  return describe_command(app_, root_of(app_), inherited);
}

void Command::on_given(std::function<void()> action) {
  app_->callback(std::move(action));
}

bool Command::is_given() const {
  return app_->parsed();
}

int ParseEnd::print(std::ostream& to_out, std::ostream& to_err) const {
  to_out << out << std::flush;
  to_err << err << std::flush;
  return exit_code;
}

int ParseEnd::print() const {
  return print(std::cout, std::cerr);
}

CommandLine::CommandLine(const std::string& about, const std::string& name)
    : Command(nullptr), owned_(std::make_unique<Root>(about, name)) {
  app_ = owned_.get();
}

CommandLine::~CommandLine() = default;

unsigned CommandLine::columns() const {
  return columns_ != 0 ? columns_ : terminal_columns(STDOUT_FILENO);
}

std::optional<ParseEnd> CommandLine::parse(int argc, const char* const* argv) {
  if (app_->get_name().empty() && argc > 0)
    app_->name(std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1));
  return parse(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}

std::optional<ParseEnd> CommandLine::parse(std::vector<std::string> arguments) {
  const CommandDescription description = describe();
  const auto mistaken = [](const std::string& message, bool surplus) {
    return ParseEnd{.exit_code = kMistake,
                    .message = message,
                    .surplus = surplus,
                    .err = message + "\nRun with --help for more information.\n"};
  };
  if (const auto mistake = find_mistake(description, arguments))
    return mistaken(mistake->message, mistake->surplus);
  const CommandDescription& named = named_command(description, arguments).command;
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the arguments in reverse order
  try {
    app_->parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    return ParseEnd{.out = help_text(named, columns())};
  } catch (const CLI::CallForVersion& version) {
    return ParseEnd{.out = std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    ParseEnd end = mistaken(error.what(), dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr);
    end.exit_code = error.get_exit_code();
    end.bare = named.needs_command;
    if (end.bare) end.out = help_text(named, columns());
    return end;
  }
}

}  // namespace ckpt
