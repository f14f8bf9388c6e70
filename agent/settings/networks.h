// SPDX-License-Identifier: Apache-2.0
// The networks of agent.toml and the addresses that this machine has.
// Threads: any. The functions only query the kernel for its devices. Errors: kInvalidArgument for a device or
// an address that this machine does not have, and for an address that its transport cannot use. The error
// names the network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

struct NetworkSettings {
  wire::DataNetwork network;
  std::vector<std::string> devices;  // devices whose first addresses the network uses; empty if the network
                                     // lists addresses
};

[[nodiscard]] bool is_ip_address(const std::string& text);
// Returns the reason why the transport cannot use the address, and a remedy. An empty string means that it
// can use the address.
[[nodiscard]] std::string why_unusable(wire::LaneTransport transport, const std::string& address);
// Returns the address in the form that precedes a port, with an IPv6 address in brackets.
[[nodiscard]] std::string host_text(const std::string& address);
// Returns the networks, each with addresses of this machine. A device's address is its first IPv4 address, or
// its first IPv6 address that is not link-local. Without settings there is one network, "local", TLS on
// loopback.
Result<std::vector<wire::DataNetwork>> resolve_networks(const std::vector<NetworkSettings>& settings);

}  // namespace ckpt::agent
