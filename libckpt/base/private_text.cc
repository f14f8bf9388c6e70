// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/private_text.h"

#include <algorithm>
#include <array>

namespace ckpt {
namespace {

constexpr std::string_view kUnmarkedOutput = "its last output: ";

struct Begin {
  std::size_t at = std::string_view::npos;
  std::size_t text = 0;  // the position after the mark
  PrivatePart part = PrivatePart::kOutput;
};

void take_earlier(Begin& first, std::size_t at, std::size_t length, PrivatePart part) {
  if (at >= first.at) return;
  first.at = at;
  first.text = at + length;
  first.part = part;
}

Begin next_part(std::string_view text, std::size_t from) {
  Begin first;
  take_earlier(first, text.find(kCommandMark, from), kCommandMark.size(), PrivatePart::kCommand);
  take_earlier(first, text.find(kOutputMark, from), kOutputMark.size(), PrivatePart::kOutput);
  const std::size_t phrase = text.find(kUnmarkedOutput, from);
  if (phrase == std::string_view::npos || phrase >= first.at) return first;
  const std::size_t behind = phrase + kUnmarkedOutput.size();
  const std::string_view rest = text.substr(behind);
  if (!rest.starts_with(kOutputMark)) take_earlier(first, behind, 0, PrivatePart::kOutput);
  return first;
}

}  // namespace

std::string mark_private(PrivatePart part, std::string_view text) {
  std::string marked(part == PrivatePart::kCommand ? kCommandMark : kOutputMark);
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const bool is_mark =
        rest.starts_with(kCommandMark) || rest.starts_with(kOutputMark) || rest.starts_with(kPrivateEndMark);
    if (!is_mark) marked += text[i];
    i += is_mark ? kPrivateEndMark.size() : 1;
  }
  marked += kPrivateEndMark;
  return marked;
}

std::string show_private(std::string_view text, const PrivateParts& may_see) {
  std::string shown;
  std::size_t at = 0;
  while (true) {
    const Begin part = next_part(text, at);
    shown += text.substr(at, part.at - at);
    if (part.at == std::string_view::npos) return shown;
    const std::size_t end = text.find(kPrivateEndMark, part.text);
    const bool visible = part.part == PrivatePart::kCommand ? may_see.command : may_see.output;
    if (visible)
      shown += text.substr(part.text, end - part.text);
    else
      shown +=
          part.part == PrivatePart::kCommand ? "(shown to the role operator)" : "(shown to the role admin)";
    if (end == std::string_view::npos) return shown;
    at = end + kPrivateEndMark.size();
  }
}

bool is_public(std::string_view text) {
  constexpr std::array kSigns = {kCommandMark, kOutputMark, kPrivateEndMark, kUnmarkedOutput};
  return std::none_of(kSigns.begin(), kSigns.end(),
                      [text](std::string_view sign) { return text.find(sign) != std::string_view::npos; });
}

}  // namespace ckpt
