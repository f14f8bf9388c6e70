// SPDX-License-Identifier: Apache-2.0
// The access check and the answer of GET /metrics. The functions are pure, except that they read the
// registry's sources.
#pragma once

#include <string>
#include <vector>

#include "libckpt/net/control/http_server.h"
#include "libckpt/net/metrics/registry.h"

namespace ckpt::metrics {

[[nodiscard]] bool is_page(const control::HttpRequest& request);
// Returns the page, or 405 for a method other than GET. Returns 401 for an unauthorized client. A client is
// authorized by a client certificate, by a Unix socket, or by one of the tokens as its bearer token. Without
// tokens, every client may read.
[[nodiscard]] control::HttpResponse answer(const Registry& registry, const control::HttpRequest& request,
                                           const std::vector<std::string>& tokens);
// Returns a response with a line of text for people.
[[nodiscard]] control::HttpResponse text_response(unsigned status, const std::string& text);

}  // namespace ckpt::metrics
