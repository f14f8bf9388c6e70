// SPDX-License-Identifier: Apache-2.0
// The context that every command gets: its output, the format of that, and the coordinator. Threads: one.
#pragma once

#include <ostream>
#include <string>

#include "libckpt/base/clock.h"
#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/exit_codes.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

struct Context {
  std::ostream& out;      // results
  std::ostream& err;      // progress, notes, errors
  bool terminal = false;  // err is one
  bool json = false;      // -o json
  CoordinatorClient coordinator;
  std::chrono::milliseconds patience{60'000};            // for so long a lost coordinator is redialled
  std::chrono::milliseconds shown_after{1'000};          // a wait that lasts longer is shown
  Screen screen{};                                       // the terminal or pipe behind `out`
  bool wide = false;                                     // -o wide
  std::function<std::int64_t()> now_ms = wall_clock_ms;  // ages count back from it

  [[nodiscard]] const std::string& home() const noexcept { return coordinator.home(); }
  // Prints one line on err.
  void note(const std::string& line);
  // Returns the layout of results: they fit a terminal, and are whole elsewhere.
  [[nodiscard]] Layout layout() const;
  // Prints the result as JSON.
  void print(const Json& value);
};

// Prints "gpumigrate: message" on err, or with -o json one line of JSON in the form of docs/api.md. Returns
// `exit_code`, or the exit code of the error.
int report(Context& context, const Error& error);
int report(Context& context, const Error& error, int exit_code);
// Reports the error of a command that follows an operation which continues without it. After Ctrl-C
// (kAborted) the outcome of the operation is unknown.
int report_unfollowed(Context& context, const Error& error);

}  // namespace ckpt::cli
