// SPDX-License-Identifier: Apache-2.0
// Addresses of lanes over IP: IPv4 or IPv6, with a port.
// Threads: pure functions. Errors: kInvalidArgument for a text that is not an address.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

struct LaneAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
};

// Converts between an address and its text, "tls:10.0.0.5:4711" or "tls:[fd77::1]:4711" for the scheme
// "tls:". An address has only one form, since both ends use it as the identity of their key. An address that
// identifies no interface is refused.
std::string format_address(std::string_view scheme, const LaneAddress& address);
Result<LaneAddress> parse_address(std::string_view scheme, const std::string& text);
// Converts an address without a port, whose port is then 0.
Result<LaneAddress> parse_ip(const std::string& ip);
std::string ip_text(const LaneAddress& address);
LaneAddress with_port(LaneAddress address, std::uint16_t port);

// Returns all ports of a range, beginning with a different port at each call. Returns {0} if the kernel
// chooses the port.
std::vector<std::uint16_t> ports_in_turn(PortRange ports);
// Returns the error kUnavailable, which states that every port of the range is in use by another listener.
Error ports_taken(PortRange ports, const LaneAddress& local);

}  // namespace ckpt::transport
