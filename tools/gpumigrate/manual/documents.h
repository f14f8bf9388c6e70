// SPDX-License-Identifier: Apache-2.0
// Documents made from what the program takes (libckpt/command_line/description.h), so that they cannot differ
// from it. Pure. Errors: none.
#pragma once

#include <map>
#include <string>

#include "libckpt/command_line/description.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

std::string cli_page(const CommandDescription& program);         // docs/command/cli.md
std::string cheatsheet_page(const CommandDescription& program);  // docs/command/cheatsheet.md
// Pages of section 1 in roff, by the file's name, such as "gpumigrate-migrate.1".
std::map<std::string, std::string> man_pages(const CommandDescription& program);
// For programs that call every command.
Json definition(const CommandDescription& command);

}  // namespace ckpt::cli
