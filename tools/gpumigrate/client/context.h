// SPDX-License-Identifier: Apache-2.0
// The context that every command gets: where to print, in which form, and the coordinator. Threads: one.
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
  std::chrono::milliseconds patience{60'000};    // how long a coordinator that is away is dialled again
  std::chrono::milliseconds shown_after{1'000};  // a wait is shown once it has lasted so long
  Screen screen{};                               // what `out` is shown on
  bool wide = false;                             // -o wide
  std::function<std::int64_t()> now_ms = wall_clock_ms;  // that ages count from

  [[nodiscard]] const std::string& home() const noexcept { return coordinator.home(); }
  // One line on err.
  void note(const std::string& line);
  // How results look: they fit a terminal, and are whole elsewhere.
  [[nodiscard]] Layout layout() const;
  // The result as JSON.
  void print(const Json& value);
};

// Prints "gpumigrate: message" on err, or with -o json one line of JSON as in docs/api.md. Returns the exit
// code: that of the error, unless another one is given.
int report(Context& context, const Error& error);
int report(Context& context, const Error& error, int exit_code);
// Reports for a command that follows what goes on without it. After Ctrl-C (kAborted) the outcome of that is
// not known.
int report_unfollowed(Context& context, const Error& error);

}  // namespace ckpt::cli
