// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "coordinator/state/model.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {
namespace {

const std::string& where_of(const Image& image) {
  return image.folder.empty() ? image.node : image.folder;
}

auto key_of(const ListedImage& l) {
  return std::tie(l.image.job, l.image.sequence, l.incarnation, l.order_ms, l.image.version,
                  where_of(l.image));
}
auto key_of(const ImageCursor& c) {
  return std::tie(c.job, c.sequence, c.incarnation, c.order_ms, c.version, c.where);
}

// Parses the number before the next '.', or before the end, and removes it from the text. Returns false if it
// is not a number.
template <class Number>
bool parse_number(std::string_view& text, Number& number) {
  const std::string_view word = text.substr(0, text.find('.'));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  return failure == std::errc{} && end == word.data() + word.size();
}

}  // namespace

bool is_older(const ListedImage& a, const ListedImage& b) {
  return key_of(a) < key_of(b);
}

std::string cursor_text(const ListedImage& at) {
  return fmt::format("{}.{}.{}.{}.{}@{}", job_text(at.image.job), at.image.sequence, at.incarnation,
                     at.order_ms, at.image.version, where_of(at.image));
}

std::optional<ImageCursor> parse_image_cursor(std::string_view text) {
  const auto at = text.find('@');
  const auto point = text.find('.');
  if (at == std::string_view::npos || point > at || at + 1 == text.size()) return std::nullopt;
  const auto job = parse_job_id(text.substr(0, point));
  std::string_view numbers = text.substr(point + 1, at - point - 1);
  ImageCursor cursor;
  const bool good = job && parse_number(numbers, cursor.sequence) &&
                    parse_number(numbers, cursor.incarnation) && parse_number(numbers, cursor.order_ms) &&
                    parse_number(numbers, cursor.version) && numbers.empty();
  if (!good) return std::nullopt;
  cursor.job = *job;
  cursor.where = text.substr(at + 1);
  return cursor;
}

bool is_behind(const ListedImage& listed, const ImageCursor& cursor) {
  return key_of(cursor) < key_of(listed);
}

}  // namespace ckpt::coordinator
