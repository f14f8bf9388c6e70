// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/ids.h"

#include <charconv>

namespace ckpt::wire {
namespace {

constexpr std::string_view kTagAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::size_t kTagLength = 4;
constexpr unsigned kTagBits = 5;  // the number of bits of one character
constexpr std::uint64_t kMaxPlainId = 0xffffffff;

// Returns true if an agent assigned the id itself, to a snapshot or a restore. Such an id has this bit and no
// tag.
constexpr bool is_local(std::uint64_t id) {
  return id >> 63 != 0;
}

std::optional<IdTag> parse_tag(std::string_view text) {
  if (text.size() != kTagLength) return std::nullopt;
  IdTag tag = 0;
  for (const char c : text) {
    const auto digit = kTagAlphabet.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    tag = tag << kTagBits | static_cast<IdTag>(digit);
  }
  return tag == 0 ? std::nullopt : std::optional(tag);
}

}  // namespace

std::string tag_text(IdTag tag) {
  std::string text(kTagLength, '0');
  for (auto at = text.rbegin(); at != text.rend(); ++at, tag >>= kTagBits)
    *at = kTagAlphabet[tag % kTagAlphabet.size()];
  return text;
}

std::string id_text(char kind, std::uint64_t id) {
  if (is_local(id)) return kind + std::to_string(id);
  std::string text = kind + std::to_string(id_number(id));
  return id_tag(id) == 0 ? text : text + "-" + tag_text(id_tag(id));
}

std::optional<std::uint64_t> parse_id(char kind, std::string_view text) {
  if (text.size() < 2 || text.front() != kind) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data() + 1, end, number);
  if (failure != std::errc{} || number == 0) return std::nullopt;
  if (at == end) return number <= kMaxPlainId || is_local(number) ? std::optional(number) : std::nullopt;
  if (*at != '-' || number > kMaxTaggedNumber) return std::nullopt;
  const auto tag = parse_tag(std::string_view(at + 1, end));
  return tag ? std::optional(make_id(number, *tag)) : std::nullopt;
}

}  // namespace ckpt::wire
