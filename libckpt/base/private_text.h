// SPDX-License-Identifier: Apache-2.0
// Parts of a message for people that not every person may read: the command of a user's program, and its
// output. The parts are marked where the message is made, and the marks are sent and stored with the message.
// They are removed before the message is shown to a person who may not read them. Marks are characters that
// terminals do not print.
// Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt {

enum class PrivatePart : std::uint8_t { kCommand, kOutput };

inline constexpr std::string_view kCommandMark = "\xe2\x81\xa2";     // the mark before a command: the
                                                                     // character U+2062
inline constexpr std::string_view kOutputMark = "\xe2\x81\xa3";      // the mark before a program's output:
                                                                     // the character U+2063
inline constexpr std::string_view kPrivateEndMark = "\xe2\x81\xa4";  // the mark after a private part: the
                                                                     // character U+2064

// Returns the text with marks around it. Marks inside `text` are removed first.
[[nodiscard]] std::string mark_private(PrivatePart part, std::string_view text);

struct PrivateParts {
  bool command = false;
  bool output = false;
};
// Returns the text without marks, and without the parts that `may_see` does not allow. A part without an end
// mark extends to the end of the text. The unmarked text after "its last output: " is treated as a private
// part, too, because agents of earlier versions do not mark it.
[[nodiscard]] std::string show_private(std::string_view text, const PrivateParts& may_see);
// Returns whether the text has no private parts and no marks.
[[nodiscard]] bool is_public(std::string_view text);

}  // namespace ckpt
