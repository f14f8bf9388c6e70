// SPDX-License-Identifier: Apache-2.0
// GET /metrics: the right to read it, and the answer. Pure but for reading the registry's sources.
#pragma once

#include <string>
#include <vector>

#include "libckpt/net/control/http_server.h"
#include "libckpt/net/metrics/registry.h"

namespace ckpt::metrics {

[[nodiscard]] bool is_page(const control::HttpRequest& request);
// The page, or 405 for another method than GET. 401 for a client that has neither a client's certificate nor come
// over a Unix socket, and shows none of the tokens as the bearer. No tokens: everyone may read.
[[nodiscard]] control::HttpResponse answer(const Registry& registry, const control::HttpRequest& request,
                                           const std::vector<std::string>& tokens);
// A line of text for people.
[[nodiscard]] control::HttpResponse text_response(unsigned status, const std::string& text);

}  // namespace ckpt::metrics
