// SPDX-License-Identifier: Apache-2.0
// Addresses of control connections. An address is "host:port" or "unix:/path". The host is an IP address or
// "localhost". The system chooses a port when a socket listens at port 0. No name except localhost is
// resolved: a resolver that hangs must not stop a switch.
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

// Returns the address as text, for example "127.0.0.1:4711" or "unix:/path".
[[nodiscard]] std::string to_text(const asio::generic::stream_protocol::endpoint& endpoint);

}  // namespace ckpt::control
