// SPDX-License-Identifier: Apache-2.0
// Help for people, wrapped to the width of a terminal. The functions are pure except terminal_columns().
// Errors: none.
#pragma once

#include <string>

#include "libckpt/command_line/description.h"

namespace ckpt {

// Returns the width of the terminal behind the descriptor. If there is no terminal, returns the value of the
// environment variable COLUMNS. The default is 80. A width under 20 is ignored.
unsigned terminal_columns(int descriptor);

// Returns usage, options, commands by their families, examples, and footer. No line is wider than `columns`,
// if the words allow that.
std::string help_text(const CommandDescription& command, unsigned columns);

// Returns a line such as "gpumigrate migrate JOB [OPTIONS]".
std::string usage_line(const CommandDescription& command);
// Returns a title such as "-f, --follow", "--to PLACE", or "JOB".
std::string option_title(const OptionDescription& option);
// Returns the option's help with its allowed values.
std::string option_help(const OptionDescription& option);

// Returns the text in lines of at most `columns` columns, broken at blanks. Lines after the first begin with
// `indent` blanks.
std::string wrapped(const std::string& text, unsigned columns, unsigned indent);

}  // namespace ckpt
