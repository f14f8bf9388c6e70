// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/common/fail.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace ckpt::examples {

void fail(const std::string& message, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
  std::exit(code);
}

}  // namespace ckpt::examples
