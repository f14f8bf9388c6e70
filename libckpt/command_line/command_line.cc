// SPDX-License-Identifier: Apache-2.0
#include "libckpt/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

namespace ckpt {

Option Option::required() {
  option_->required();
  return *this;
}

template <class T>
Option Option::in_range(T least, T most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
template Option Option::in_range(int, int);
template Option Option::in_range(unsigned, unsigned);
template Option Option::in_range(std::uint64_t, std::uint64_t);
template Option Option::in_range(double, double);

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
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
  return Option(app_->add_option(name, variable, help));
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
  return Option(app_->add_flag(name, variable, help));
}

void Command::add_version_flag(const std::string& name, const std::string& version) {
  app_->set_version_flag(name, version);
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
    : Command(nullptr), owned_(std::make_unique<CLI::App>(about, name)) {
  app_ = owned_.get();
}

CommandLine::~CommandLine() = default;

template <class Parse>
std::optional<ParseEnd> CommandLine::parse_with(Parse parse) {
  try {
    parse();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    ParseEnd end;
    end.exit_code = app_->exit(error, out, err);
    end.message = error.what();
    end.surplus = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    end.out = out.str();
    end.err = err.str();
    return end;
  }
}

std::optional<ParseEnd> CommandLine::parse(int argc, const char* const* argv) {
  return parse_with([&] { app_->parse(argc, argv); });
}

std::optional<ParseEnd> CommandLine::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  return parse_with([&] { app_->parse(std::move(arguments)); });
}

}  // namespace ckpt
