// SPDX-License-Identifier: Apache-2.0
// Mistakes on a command line: words that no command takes, and missing or empty values, with the name that
// was probably meant. The functions are pure. Errors: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/command_line/description.h"

namespace ckpt {

struct Mistake {
  std::string message;   // the message, as one line for people
  bool surplus = false;  // whether there are more words than the command accepts
};

// Returns the first mistake in the words after the program's name. Values are not checked any further.
std::optional<Mistake> find_mistake(const CommandDescription& program,
                                    const std::vector<std::string>& arguments);

struct NamedCommand {
  const CommandDescription& command;
  std::size_t positionals;  // the number of positional arguments that were given
};

// Returns the command that the words name, as far as the words are correct.
NamedCommand named_command(const CommandDescription& program, const std::vector<std::string>& arguments);

// Returns the name with the smallest edit distance to `word`. Returns nullopt if no name is close.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& names);

// Returns the word in quotes on one line, shortened if it is long.
std::string quoted(const std::string& word);

// Returns "; did you mean NAME?", or an empty string.
std::string suggestion(const std::string& word, const std::vector<std::string>& names);

}  // namespace ckpt
