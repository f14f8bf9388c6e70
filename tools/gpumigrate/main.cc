// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tools/gpumigrate/program.h"

namespace {

// Returns the size of the terminal that shows standard error or output; 80 by 24 if the size is unknown.
ckpt::cli::ScreenSize screen_size() {
  ckpt::cli::ScreenSize size;
  winsize window{};
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    if (::ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) continue;
    size.columns = window.ws_col;
    size.rows = window.ws_row > 0 ? window.ws_row : size.rows;
    break;
  }
  return size;
}

// Returns whether the environment permits colors (https://no-color.org).
bool wants_colour() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* type = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') && type != nullptr && std::string_view(type) != "dumb";
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  ckpt::cli::Context context{
      .out = std::cout,
      .err = std::cerr,
      .terminal = ::isatty(STDERR_FILENO) == 1,
      .coordinator = ckpt::cli::CoordinatorClient(ckpt::cli::default_home()),
      .screen = {.terminal = terminal, .colour = terminal && wants_colour(), .measure = screen_size}};
  return ckpt::cli::run_program({argv + 1, argv + argc}, context);
}
