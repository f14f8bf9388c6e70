// SPDX-License-Identifier: Apache-2.0
// The networks of agent.toml and the addresses that this machine has.
// Threads: pure but for asking the kernel for its devices. Errors: kInvalidArgument for a device or an
// address that this machine does not have, and for one that its transport cannot use, naming the network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

struct NetworkSettings {
  wire::DataNetwork network;
  std::vector<std::string> devices;  // it has their first addresses; empty: the network names addresses
};

[[nodiscard]] bool is_ip_address(const std::string& text);
// Returns why the transport cannot use the address, and what to give instead; empty: it can.
[[nodiscard]] std::string why_unusable(wire::LaneTransport transport, const std::string& address);
// Returns the address for use before a port: an IPv6 address in brackets.
[[nodiscard]] std::string host_text(const std::string& address);
// Returns the networks, each with addresses of this machine. A device's address is its first IPv4 address, or
// its first IPv6 address that is not link-local. Without settings there is one network, "local", TLS on
// loopback.
Result<std::vector<wire::DataNetwork>> resolve_networks(const std::vector<NetworkSettings>& settings);

}  // namespace ckpt::agent
