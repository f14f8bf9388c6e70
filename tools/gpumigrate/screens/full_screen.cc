// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/full_screen.h"

// The macros of ncurses would break the standard headers below.
#define NCURSES_NOMACROS 1
#include <langinfo.h>
#include <ncursesw/ncurses.h>

#include <clocale>
#include <cstring>

namespace ckpt::cli {

Result<std::unique_ptr<FullScreen>> FullScreen::open() {
  // Texts are UTF-8, even if the environment names another encoding.
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  SCREEN* screen = ::newterm(nullptr, stdout, stdin);
  if (screen == nullptr) {
    const char* type = std::getenv("TERM");
    return Error(ErrorCode::kUnavailable, std::string("top: the type of this terminal is unknown (TERM=") +
                                              (type == nullptr ? "" : type) + "); set TERM to a known type");
  }
  ::cbreak();
  ::noecho();
  ::curs_set(0);
  return std::unique_ptr<FullScreen>(new FullScreen(screen));
}

FullScreen::~FullScreen() {
  ::endwin();
  ::delscreen(static_cast<SCREEN*>(screen_));
}

ScreenSize FullScreen::size() const {
  return {.columns = static_cast<std::size_t>(::getmaxx(::stdscr)),
          .rows = static_cast<std::size_t>(::getmaxy(::stdscr))};
}

void FullScreen::draw(const Frame& lines) {
  ::werase(::stdscr);
  const int rows = ::getmaxy(::stdscr);
  for (int row = 0; row < rows && static_cast<std::size_t>(row) < lines.size(); row++)
    ::mvwaddstr(::stdscr, row, 0, lines[static_cast<std::size_t>(row)].c_str());
  ::wrefresh(::stdscr);
}

std::optional<int> FullScreen::key(std::chrono::milliseconds time) {
  ::wtimeout(::stdscr, static_cast<int>(time.count()));
  const int pressed = ::wgetch(::stdscr);
  if (pressed == ERR || pressed == KEY_RESIZE) return std::nullopt;
  return pressed;
}

}  // namespace ckpt::cli
