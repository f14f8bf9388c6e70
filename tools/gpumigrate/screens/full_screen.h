// SPDX-License-Identifier: Apache-2.0
// A terminal in full-screen mode. The destructor restores the terminal. Only full_screen.cc uses ncurses.
// Threads: one; one object at a time. Errors: kUnavailable if the terminal's type is unknown.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "libckpt/base/result.h"
#include "tools/gpumigrate/screens/frame.h"

namespace ckpt::cli {

class FullScreen {
 public:
  static Result<std::unique_ptr<FullScreen>> open();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  [[nodiscard]] ScreenSize size() const;
  void draw(const Frame& lines);
  // Waits for a key. Returns nullopt if the time is over, a signal arrives, or the window changes its size.
  std::optional<int> key(std::chrono::milliseconds time);

 private:
  explicit FullScreen(void* screen) : screen_(screen) {}
  void* screen_;  // ncurses' SCREEN
};

}  // namespace ckpt::cli
