// SPDX-License-Identifier: Apache-2.0
// Help for people, wrapped to the width of a terminal. Pure but for terminal_columns(). Errors: none.
#pragma once

#include <string>

#include "libckpt/command_line/description.h"

namespace ckpt {

// Returns the width of the terminal behind the descriptor; else the variable COLUMNS; else 80.
unsigned terminal_columns(int descriptor);

// Usage, options, commands by their families, examples, footer. No line is wider than `columns`, if words allow.
std::string help_text(const CommandDescription& command, unsigned columns);

// "gpumigrate migrate JOB [OPTIONS]"
std::string usage_line(const CommandDescription& command);
// "-f, --follow", "--to PLACE", "JOB"
std::string option_title(const OptionDescription& option);
// Its help, with what its values may be.
std::string option_help(const OptionDescription& option);

// The text in lines of at most `columns`, broken at blanks. Lines after the first begin with `indent` blanks.
std::string wrapped(const std::string& text, unsigned columns, unsigned indent);

}  // namespace ckpt
