// SPDX-License-Identifier: Apache-2.0
// The text for a terminal or a pipe when a screen that is shown repeatedly has changed. Pure functions of
// the frame that was shown and the next one. A frame is a screen's lines, without ends of line.
#pragma once

#include <string>
#include <vector>

#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

using Frame = std::vector<std::string>;

// The lines of a text, as many as the screen has rows for; one row stays free for the cursor. The last line
// tells how many more there are.
Frame frame_of(const std::string& text, ScreenSize size);

// The bytes that replace the frame on a terminal whose cursor stands below it. Empty: nothing has changed.
std::string redraw(const Frame& shown, const Frame& next);

// For a pipe: the lines of `text` whose line of `key` is new, so that what changes all the time does not
// count. Both have the same lines; `before` is the key of the time before, empty at first.
std::string news(const std::string& before, const std::string& key, const std::string& text);

}  // namespace ckpt::cli
