// SPDX-License-Identifier: Apache-2.0
// A list that is printed once, or with -w shown until Ctrl-C. A terminal shows it redrawn in place. A pipe
// gets a line for each entry that is new or has changed.
// Threads: one. Errors: show_list() reports them and returns the exit code. While it is shown, a coordinator
// that is away is asked again for as long as the context's patience.
#pragma once

#include <functional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// One answer of the coordinator.
struct ListAnswer {
  Json list;                                         // what -o json prints
  std::function<std::string(const Layout&)> view{};  // the same as a table
  std::string footer{};                              // one line below the table; may be empty
};

using AskList = std::function<Result<ListAnswer>(Context&)>;

int show_list(Context& context, const AskList& ask, bool watch);

}  // namespace ckpt::cli
