// SPDX-License-Identifier: Apache-2.0
// The command line of hotset. After an invalid value, the program prints one line and exits with code 64.
#pragma once

#include <cstdint>
#include <string>

#include "tests/programs/hotset/hot_set.h"
#include "tools/examples/common/command_line.h"

namespace ckpt::examples {

struct Options {
  std::uint64_t bytes = 0;
  std::uint64_t steps = 0;  // number of steps; 0: runs until SIGINT or SIGTERM
  std::int64_t step_ns = 0;
  std::uint64_t print_every = 0;
  std::string hold;
  HotSetOptions hot_set;
  CommonOptions common;
};

Options parse_options(int argc, char** argv);

}  // namespace ckpt::examples
