// SPDX-License-Identifier: Apache-2.0
// The destination of a command's results: a terminal of some size, or a pipe or file. The program finds it
// out once at its start and passes it to the commands (Context), so that tests can choose one. A terminal
// gets lines that fit it. A pipe or file gets the same columns, each whole, like kubectl's.
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
  bool terminal = false;                  // standard output is one
  bool colour = false;                    // it shows colours, and the user wants them
  std::function<ScreenSize()> measure{};  // called for each frame, since windows change; may be empty

  [[nodiscard]] ScreenSize size() const { return measure ? measure() : ScreenSize{}; }
};

// The form of a view of the coordinator's answers. It is a plain value, so that views are pure.
struct Layout {
  std::size_t width = kUnlimited;  // no line is longer
  bool wide = false;               // -o wide: also show the less common columns
  bool colour = false;
  std::int64_t now_ms = 0;  // Unix time; ages count back from it
  bool ages = true;         // false: leave ages out, so that two views differ only if something has happened
};

}  // namespace ckpt::cli
