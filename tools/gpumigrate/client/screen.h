// SPDX-License-Identifier: Apache-2.0
// The destination of a command's results: a terminal of some size, or a pipe or file. The program determines
// it once at its start and passes it to the commands (Context), so that tests can choose one. Lines are made
// to fit a terminal. A pipe or file gets the same columns without shortening, like kubectl's.
// Threads: `measure` is called by the command's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

namespace ckpt::cli {

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct ScreenSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

struct Screen {
  bool terminal = false;                  // true if standard output is a terminal
  bool colour = false;                    // true if the terminal shows colors, and the user wants them
  std::function<ScreenSize()> measure{};  // called for each frame, because windows change their size; may be
                                          // empty

  [[nodiscard]] ScreenSize size() const { return measure ? measure() : ScreenSize{}; }
};

// The form of a view of the coordinator's answers. It is a plain value, so that views are pure functions.
struct Layout {
  std::size_t width = kUnlimited;  // the length limit of lines
  bool wide = false;               // true with -o wide: the less common columns are shown as well
  bool colour = false;
  std::int64_t now_ms = 0;  // Unix time from which ages are computed
  bool ages = true;  // false: ages are omitted, so that two views differ only if something has happened
};

}  // namespace ckpt::cli
