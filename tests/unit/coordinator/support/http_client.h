// SPDX-License-Identifier: Apache-2.0
// A blocking HTTP client of a few lines: one connection per request.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "libckpt/base/fd.h"

namespace ckpt::coordinator::test {

struct HttpAnswer {
  unsigned status = 0;
  std::map<std::string, std::string> headers;
  std::string body;
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body); }
};

// Addresses are "unix:/path". Sends `bytes` and returns what comes back until the peer closes.
std::string talk(const std::string& address, const std::string& bytes);

// Sends a request without waiting for the answer: the owner of the connection may wait, or go.
UniqueFd begin_request(const std::string& address, const std::string& token, const std::string& target);

HttpAnswer request(const std::string& address, const std::string& token, const std::string& method,
                   const std::string& target, const std::string& body = {});

}  // namespace ckpt::coordinator::test
