// SPDX-License-Identifier: Apache-2.0
// Generates documents from the program's definition (libckpt/command_line/description.h), so that they match
// the program.
// Threads: pure functions. Errors: none.
#pragma once

#include <map>
#include <string>

#include "libckpt/command_line/description.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

std::string cli_page(const CommandDescription& program);         // returns the page docs/command/cli.md
std::string cheatsheet_page(const CommandDescription& program);  // returns the page
                                                                 // docs/command/cheatsheet.md
// Returns the man pages of section 1 in roff, by file name, such as "gpumigrate-migrate.1".
std::map<std::string, std::string> man_pages(const CommandDescription& program);
// Returns the definition as JSON, for programs that call every command.
Json definition(const CommandDescription& command);

}  // namespace ckpt::cli
