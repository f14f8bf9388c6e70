// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "tools/gpumigrate/program.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  ckpt::cli::Context context{.out = std::cout,
                             .err = std::cerr,
                             .terminal = ::isatty(STDERR_FILENO) == 1,
                             .coordinator = ckpt::cli::CoordinatorClient(ckpt::cli::default_home())};
  return ckpt::cli::run_program({argv + 1, argv + argc}, context);
}
