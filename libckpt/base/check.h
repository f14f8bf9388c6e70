// SPDX-License-Identifier: Apache-2.0
// CKPT_CHECK(condition, text): if the condition is false, prints the place and the text and aborts the
// process, in every build. It is for conditions that only a bug of this program can violate, never for input;
// input errors are returned as an Error. An aborted process recovers from its journal when it is restarted. A
// process that continued could run a job twice.
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
