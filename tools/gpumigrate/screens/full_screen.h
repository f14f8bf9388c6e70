// SPDX-License-Identifier: Apache-2.0
// A terminal taken over whole, and given back as it was. The only file that uses ncurses is full_screen.cc.
// Threads: one; one object at a time. Errors: kUnavailable: the terminal's type is not known.
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
  // A key that is pressed within the time; nothing after it, at a signal, or when the window changes its
  // size.
  std::optional<int> key(std::chrono::milliseconds time);

 private:
  explicit FullScreen(void* screen) : screen_(screen) {}
  void* screen_;  // ncurses' SCREEN
};

}  // namespace ckpt::cli
