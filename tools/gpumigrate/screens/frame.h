// SPDX-License-Identifier: Apache-2.0
// Updates of a screen on a terminal or in a pipe. Pure functions of the shown frame and the next one. A frame
// is the list of a screen's lines, without ends of line.
#pragma once

#include <string>
#include <vector>

#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

using Frame = std::vector<std::string>;

// Returns the lines of a text that fit the rows of the screen. One row stays free for the cursor. If lines
// are omitted, the last line counts them.
Frame frame_of(const std::string& text, ScreenSize size);

// Returns the bytes that replace the frame on a terminal whose cursor is below the frame. The result is empty
// if nothing has changed.
std::string redraw(const Frame& shown, const Frame& next);

// Returns the lines for a pipe: the lines of `text` whose line in `key` is new. `key` is the same text
// without values that change continuously. `before` is the previous key, which is empty at first.
std::string news(const std::string& before, const std::string& key, const std::string& text);

}  // namespace ckpt::cli
