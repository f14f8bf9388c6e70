// SPDX-License-Identifier: Apache-2.0
// CKPT_CHECK(condition, text): ends the process with the place and the text if an invariant is violated, in
// every build. It is for conditions that only a bug of this program can violate, never for input; input
// errors are returned as an Error. A process that ends recovers from its journal. A process that continued
// could run a job twice.
// Threads: any. The cost of a valid condition is one branch.
#pragma once

namespace ckpt::detail {

// Writes a line to standard error and raises SIGABRT.
[[noreturn]] void end_on_broken_invariant(const char* file, int line, const char* text) noexcept;

}  // namespace ckpt::detail

#define CKPT_CHECK(condition, text)                                      \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::ckpt::detail::end_on_broken_invariant(__FILE__, __LINE__, text); \
  } while (false)
