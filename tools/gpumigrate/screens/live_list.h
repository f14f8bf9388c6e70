// SPDX-License-Identifier: Apache-2.0
// Prints a list once, or with -w shows it until Ctrl-C. On a terminal the list is redrawn in place. In a pipe
// a line is printed for each entry that is new or has changed.
// Threads: one. Errors: show_list() reports them and returns the exit code. With -w it retries a lost
// coordinator for the context's patience.
#pragma once

#include <functional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// One answer of the coordinator.
struct ListAnswer {
  Json list;                                         // the output of -o json
  std::function<std::string(const Layout&)> view{};  // the list as a table
  std::string footer{};                              // one line below the table; may be empty
};

using AskList = std::function<Result<ListAnswer>(Context&)>;

int show_list(Context& context, const AskList& ask, bool watch);

}  // namespace ckpt::cli
