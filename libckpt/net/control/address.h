// SPDX-License-Identifier: Apache-2.0
// Addresses of control connections: "host:port" (host an IP address or "localhost"; port 0 = chosen when
// listening) or "unix:/path". No name is looked up beyond localhost: a resolver that hangs must not stop a
// switch.
// Threads: pure functions. Errors: kInvalidArgument for a malformed address.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::control {

struct Address {
  asio::generic::stream_protocol::endpoint endpoint;
  bool is_unix = true;
};

Result<Address> parse_address(std::string_view text);

// "127.0.0.1:4711" or "unix:/path".
[[nodiscard]] std::string to_text(const asio::generic::stream_protocol::endpoint& endpoint);

}  // namespace ckpt::control
