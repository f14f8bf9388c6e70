// SPDX-License-Identifier: Apache-2.0
// Parts of a message for people that not all may read: the command of a user's program, and its output. They are marked
// where the message is made, and travel and are stored with their marks. Where it is shown to one who may not read
// them, they are left out. Marks are characters that terminals do not print.
// Threads: pure functions. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt {

enum class PrivatePart : std::uint8_t { kCommand, kOutput };

inline constexpr std::string_view kCommandMark = "\xe2\x81\xa2";     // U+2062
inline constexpr std::string_view kOutputMark = "\xe2\x81\xa3";      // U+2063
inline constexpr std::string_view kPrivateEndMark = "\xe2\x81\xa4";  // U+2064

// Marks in `text` itself are taken out first.
[[nodiscard]] std::string mark_private(PrivatePart part, std::string_view text);

struct PrivateParts {
  bool command = false;
  bool output = false;
};
// Without marks, and without the parts that `may_see` does not have. A part whose end is missing lasts to the end of
// the text. So does what follows "its last output: " unmarked: agents of earlier versions write so.
[[nodiscard]] std::string show_private(std::string_view text, const PrivateParts& may_see);
// Nothing in it has to be left out, and it has no marks.
[[nodiscard]] bool is_public(std::string_view text);

}  // namespace ckpt
