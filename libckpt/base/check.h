// SPDX-License-Identifier: Apache-2.0
// CKPT_CHECK(condition, text): ends the process with the place and the text where an invariant does not hold, in every
// build. It is for what a bug of this program alone can break, never for input: that is answered with an Error. A
// process that ends recovers from its journal; one that goes on could run a job twice.
// Threads: any. The cost while it holds is one branch.
#pragma once

namespace ckpt::detail {

// A line on standard error, and SIGABRT.
[[noreturn]] void end_on_broken_invariant(const char* file, int line, const char* text) noexcept;

}  // namespace ckpt::detail

#define CKPT_CHECK(condition, text)                                      \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::ckpt::detail::end_on_broken_invariant(__FILE__, __LINE__, text); \
  } while (false)
