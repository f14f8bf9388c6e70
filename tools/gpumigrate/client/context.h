// SPDX-License-Identifier: Apache-2.0
// The context of every command: its output, the output's format, and the coordinator.
// Threads: one.
#pragma once

#include <ostream>
#include <string>

#include "libckpt/base/clock.h"
#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/exit_codes.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

struct Context {
  std::ostream& out;      // the stream for results
  std::ostream& err;      // the stream for progress, notes and errors
  bool terminal = false;  // true if `err` is a terminal
  bool json = false;      // true with -o json
  CoordinatorClient coordinator;
  std::chrono::milliseconds patience{60'000};            // the time for which a lost coordinator is redialed
  std::chrono::milliseconds shown_after{1'000};          // the duration after which a wait is shown
  Screen screen{};                                       // the terminal or pipe behind `out`
  bool wide = false;                                     // true with -o wide
  std::function<std::int64_t()> now_ms = wall_clock_ms;  // the clock from which ages are computed

  [[nodiscard]] const std::string& home() const noexcept { return coordinator.home(); }
  // Prints one line on `err`.
  void note(const std::string& line);
  // Returns the layout of results. On a terminal, results fit the terminal's width. Elsewhere they are not
  // shortened.
  [[nodiscard]] Layout layout() const;
  // Prints the result as JSON.
  void print(const Json& value);
};

// Prints "gpumigrate: message" on `err`, or with -o json one line of JSON in the form of docs/api.md. Returns
// `exit_code`, or the exit code of the error.
int report(Context& context, const Error& error);
int report(Context& context, const Error& error, int exit_code);
// Reports the error of a command whose operation continues without the command. After Ctrl-C (kAborted) the
// outcome of the operation is unknown.
int report_unfollowed(Context& context, const Error& error);

}  // namespace ckpt::cli
