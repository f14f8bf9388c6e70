// SPDX-License-Identifier: Apache-2.0
// Words of a command line that no command takes, values that are missing or empty; with the name that was
// probably meant. Pure. Errors: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/command_line/description.h"

namespace ckpt {

struct Mistake {
  std::string message;   // one line
  bool surplus = false;  // more words than the command takes
};

// The first mistake in the words after the program's name. Values are not checked any further.
std::optional<Mistake> find_mistake(const CommandDescription& program,
                                    const std::vector<std::string>& arguments);

struct NamedCommand {
  const CommandDescription& command;
  std::size_t positionals;  // how many of its arguments were given
};

// The command that the words name, as far as they are right.
NamedCommand named_command(const CommandDescription& program, const std::vector<std::string>& arguments);

// The name that is nearest to `word` by edit distance; nothing if none is near.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& names);

// In quotes, shortened if it is long, on one line.
std::string quoted(const std::string& word);

// "; did you mean NAME?", or nothing.
std::string suggestion(const std::string& word, const std::vector<std::string>& names);

}  // namespace ckpt
