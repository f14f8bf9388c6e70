// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ckpt::detail {

void end_on_broken_invariant(const char* file, int line, const char* text) noexcept {
  std::fprintf(stderr, "gpumigrate: %s:%d: an internal check failed; report this as a bug: %s\n", file, line,
               text);
  std::abort();
}

}  // namespace ckpt::detail
