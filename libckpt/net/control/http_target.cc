// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/http_target.h"

#include <boost/url/parse.hpp>

namespace ckpt::control {

std::optional<HttpTarget> parse_http_target(std::string_view text) {
  if (text.size() > kMaxHttpTargetBytes) return std::nullopt;
  const auto url = boost::urls::parse_origin_form({text.data(), text.size()});
  if (!url) return std::nullopt;
  HttpTarget target;
  for (const auto segment : url->encoded_segments()) target.path.push_back(segment.decode());
  // An empty part after the last slash is not a segment.
  if (!target.path.empty() && target.path.back().empty()) target.path.pop_back();
  for (const auto parameter : url->encoded_params())
    target.query[parameter.key.decode()] = parameter.value.decode();
  return target;
}

}  // namespace ckpt::control
