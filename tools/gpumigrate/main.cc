// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "tools/gpumigrate/program.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  return ckpt::cli::run_program({argv + 1, argv + argc}, ckpt::cli::default_home(), std::cout, std::cerr,
                                ::isatty(STDERR_FILENO) == 1);
}
