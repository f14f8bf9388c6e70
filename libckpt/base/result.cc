// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/result.h"

#include <cstdio>
#include <cstdlib>

namespace ckpt::detail {

void end_on_misuse(const Error* held) noexcept {
  if (held == nullptr)
    std::fputs("gpumigrate: a result without an error was read as an error\n", stderr);
  else
    std::fprintf(stderr, "gpumigrate: an error was read as a value: %s\n", held->to_string().c_str());
  std::abort();
}

}  // namespace ckpt::detail
