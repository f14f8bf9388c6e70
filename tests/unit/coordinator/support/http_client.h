// SPDX-License-Identifier: Apache-2.0
// A small blocking HTTP client with one connection per request.
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

// Sends `bytes` and returns the bytes that arrive until the peer closes. Addresses are "unix:/path".
std::string talk(const std::string& address, const std::string& bytes);

// Sends a request without waiting for the answer. The owner of the connection may wait or disconnect.
UniqueFd begin_request(const std::string& address, const std::string& token, const std::string& target);

HttpAnswer request(const std::string& address, const std::string& token, const std::string& method,
                   const std::string& target, const std::string& body = {});

}  // namespace ckpt::coordinator::test
