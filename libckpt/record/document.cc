// SPDX-License-Identifier: Apache-2.0
#include "libckpt/record/document.h"

namespace ckpt::record {

DocumentError DocumentError::within(const std::string& where) const {
  const bool is_element = text_.starts_with('[');
  const bool is_sentence = text_.starts_with("is ") || text_.starts_with("does ");
  return DocumentError(where + (is_element ? "" : is_sentence ? " " : ".") + text_);
}

namespace detail {

void fail_type(const char* found, const char* wanted) {
  throw DocumentError(std::string("is ") + found + ", not " + wanted);
}

void fail_range(std::string found) {
  constexpr std::size_t kShown = 40;
  if (found.size() > kShown) found = found.substr(0, kShown) + "...";
  throw DocumentError("is " + found + ", which is not one of its values");
}

}  // namespace detail

std::string to_text(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parse_object(std::string_view text) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) throw DocumentError("the text is not JSON");
  if (!document.is_object()) throw DocumentError("the text is not a JSON object");
  return document;
}

}  // namespace ckpt::record
